"""Review a model's mistakes, labels that are probably wrong, and duplicate samples."""
