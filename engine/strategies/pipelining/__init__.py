"""Building blocks of the pipeline strategies."""
