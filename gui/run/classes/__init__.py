"""Class metrics of a run."""
