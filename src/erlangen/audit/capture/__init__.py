"""Seeing a running model: its modules, its torch functions, and where in its code they are called."""
