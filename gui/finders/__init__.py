"""Pages that find a suitable batch size and learning rate."""
