"""Conversion of a model to files for other programs, and comparison of their outputs with the model's."""
