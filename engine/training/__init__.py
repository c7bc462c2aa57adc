"""Training loop of a worker, with its callbacks, loaders, checkpoints and choices."""
