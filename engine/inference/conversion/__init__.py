"""Convert a model to files for other programs, and compare their outputs with those of the model."""
