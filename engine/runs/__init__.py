"""Runs on disk, and functions that find, start, resume and stop them, for window, terminal and supervisor."""
