"""Training of a run in its worker processes, with callbacks, data loaders, checkpoints and automatic choices."""
