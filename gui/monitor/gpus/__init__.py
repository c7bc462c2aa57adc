"""Views of the GPUs: tiles, compact rows, and details of one GPU."""
