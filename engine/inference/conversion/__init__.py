"""Conversion of a model into files for other programs, with a comparison of their outputs and the model's."""
