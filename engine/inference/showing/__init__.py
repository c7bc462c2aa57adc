"""Draw the samples in an evaluation."""
