"""What looks on as a model is trained: each file holds one callback."""
