"""Checkpoints: content, files, schedule and resuming."""
