"""What the model of a run predicts."""
