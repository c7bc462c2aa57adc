"""Runs on disk, and functions that find, start, resume and stop them. Window, terminal and supervisor use these."""
