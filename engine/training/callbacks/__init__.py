"""Callbacks of the training loop, one in each file."""
