"""What a run's model is used for: predictions, and files for other programs."""
