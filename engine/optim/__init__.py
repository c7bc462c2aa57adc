"""Optimizer, loss scaling and weight averaging for the parameters on a rank."""
