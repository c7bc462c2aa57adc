"""Checkpoints: content, files, schedule, and resuming a run from them."""
