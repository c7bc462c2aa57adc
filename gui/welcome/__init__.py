"""Welcome page, shown until there is a run."""
