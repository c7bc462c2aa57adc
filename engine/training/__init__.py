"""What a worker does: the loop, precision, checkpoints."""
