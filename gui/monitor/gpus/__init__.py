"""The GPUs: tiles, lines, and one in detail."""
