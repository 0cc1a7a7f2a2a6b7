"""The attention APIs: each file registers one, and imports no other. All are imported with the session."""
