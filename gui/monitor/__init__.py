"""Monitor page: GPUs of this machine and of remote hosts."""
