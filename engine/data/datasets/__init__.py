"""Splits of a recognized dataset as samples for a loader."""
