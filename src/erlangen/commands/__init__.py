"""The commands of `erlangen`, one module each, with a function `register(app)`."""
