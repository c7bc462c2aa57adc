"""Page of searches over settings: the form of a new search, progress and results."""
