"""View of the measurements of the parallel strategy per rank."""
