"""Notifications to the user about the progress and the end of runs."""
