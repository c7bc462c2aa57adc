"""Review of a model's mistakes, of probably wrong labels, and of duplicate samples."""
