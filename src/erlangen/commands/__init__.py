"""The commands of `erlangen`, one module each, with a function of its name and its `HELP`."""
