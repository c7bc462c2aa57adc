"""Page on which users divide a model into pipeline stages."""
