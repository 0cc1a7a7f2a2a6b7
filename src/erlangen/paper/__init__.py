"""The reproduction of the paper: its statements as checks, and its Table 2 measured on the models."""
