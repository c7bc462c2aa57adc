"""Cut of a model into pipeline stages."""
