"""Predictions of a run for validation samples."""
