"""Notices to the user of what becomes of a run."""
