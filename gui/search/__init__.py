"""Page for searches over settings: the form for a new search, progress and results."""
