"""A run's curves, and where its time goes."""
