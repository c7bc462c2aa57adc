"""A run's predictions on validation samples."""
