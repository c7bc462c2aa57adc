"""Page for dividing a model into pipeline stages."""
