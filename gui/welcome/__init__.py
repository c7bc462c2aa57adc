"""Welcome page, which is shown until there is a run."""
