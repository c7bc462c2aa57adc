"""Inspection of a dataset folder for the user: samples, statistics and problems. Torch-free."""
