"""Small models of the architectures of transformers, and inputs for them."""
