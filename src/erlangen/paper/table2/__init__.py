"""The architectures of the paper's Table 2, and what the attention calls of their implementations read."""
