"""View of the processes on GPUs, in which users can also end them."""
