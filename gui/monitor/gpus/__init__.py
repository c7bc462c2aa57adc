"""Views of GPUs: tiles, compact rows, and the details of a GPU."""
