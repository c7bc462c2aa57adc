"""A run's worker processes: started, watched and ended."""
