"""Attention over relations, timed against the exact alternatives a person can run on a CPU."""
