"""Samples of an evaluation, worst first."""
