"""Looks a dataset folder through for the user: what is there, and what is wrong. Torch-free."""
