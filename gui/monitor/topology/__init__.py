"""View of the connections between the GPUs of a host."""
