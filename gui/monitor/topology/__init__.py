"""Connections between the GPUs of a host."""
