"""Where a model is cut into the stages of a pipeline."""
