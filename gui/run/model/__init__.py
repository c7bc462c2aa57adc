"""Evaluations of a run's model."""
