"""The processes on the GPUs, and ending one."""
