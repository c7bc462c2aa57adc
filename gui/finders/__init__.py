"""Pages that find a batch size and a learning rate."""
