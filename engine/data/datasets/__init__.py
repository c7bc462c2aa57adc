"""Splits of a recognized dataset: samples that a loader can read."""
