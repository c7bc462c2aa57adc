"""How good a model is on a split of a dataset, and how sure that is."""
