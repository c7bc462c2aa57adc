"""Processes on the GPUs, and their termination."""
