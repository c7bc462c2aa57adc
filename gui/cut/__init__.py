"""Page on which users cut a model into pipeline stages."""
