"""Metrics of validations."""
