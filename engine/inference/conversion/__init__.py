"""A model in files for other programs: written, opened again there, and compared with the model."""
