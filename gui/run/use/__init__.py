"""Uses of a run's model."""
