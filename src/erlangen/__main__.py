"""`python -m erlangen` is the command line."""

from erlangen.cli import main

main()
