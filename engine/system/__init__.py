"""Helpers that are independent of training: paths, files, locks, text, and Linux features."""
