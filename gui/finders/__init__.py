"""The finders of a batch size and of a learning rate."""
