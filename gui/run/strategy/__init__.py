"""View of the measurements of a parallel strategy."""
