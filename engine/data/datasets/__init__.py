"""Splits of a recognized dataset, as samples that a loader reads."""
