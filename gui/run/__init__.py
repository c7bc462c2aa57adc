"""Page for a run."""
