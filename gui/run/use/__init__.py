"""Pages for using a run's model: prediction, live prediction and conversion."""
