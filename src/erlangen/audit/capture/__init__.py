"""Seeing the attention calls of a running model: one file for each kind of call."""
