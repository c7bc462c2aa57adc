"""Evaluate a model on a split of a dataset, with confidence intervals."""
