"""View of the processes on GPUs, which can also end them."""
