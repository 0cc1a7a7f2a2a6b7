"""The backends: each file registers one, and imports no other. All are imported with `attend`."""
