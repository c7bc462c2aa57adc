"""Views of the GPUs: tiles, compact rows, and one GPU in detail."""
