"""Monitor page: GPUs of this machine and of other hosts."""
