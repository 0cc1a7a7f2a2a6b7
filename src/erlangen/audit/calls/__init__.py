"""Attention calls, judged one by one: their real rows and their padding, and what they read by kind."""
