"""Languages candidates are written in: how each is built and called."""
