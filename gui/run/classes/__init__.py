"""Metrics of a run's classes."""
