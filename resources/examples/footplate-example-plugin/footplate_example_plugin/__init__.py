"""A dataset format, a model and a metric for Footplate."""
