"""Relations drawn: as text for the terminal, and as pictures of matrix and graph."""
