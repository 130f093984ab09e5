"""Languages a candidate may be written in: how each is built and called."""
