"""Samples of an evaluation, drawn."""
