"""Inspect a dataset folder and report its samples, statistics and problems to the user. Torch-free."""
