"""Optimizer of the parameters that a rank holds."""
