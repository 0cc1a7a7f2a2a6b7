"""Two sides held against each other, and reading in steps behind a cache."""
