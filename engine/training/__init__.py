"""Training of a run in its worker processes: loop, callbacks, loaders, checkpoints and automatic choices."""
