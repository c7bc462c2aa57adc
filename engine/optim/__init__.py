"""Optimizer, loss scaling and weight averages for the parameters on a rank."""
