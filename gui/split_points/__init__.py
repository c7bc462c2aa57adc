"""Page for the split points between a model's pipeline stages."""
