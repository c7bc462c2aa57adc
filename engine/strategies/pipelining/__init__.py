"""Parts of strategies that cut the model."""
