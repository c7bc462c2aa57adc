"""View of the processes on the GPUs, which can end them."""
