"""Settings: declarations, storage, effects and dialog."""
