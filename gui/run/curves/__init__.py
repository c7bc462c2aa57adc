"""Curves and step times of a run."""
