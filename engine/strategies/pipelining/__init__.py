"""What strategies need that cut a model into stages."""
