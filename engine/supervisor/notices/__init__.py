"""Notifications for the user about the progress and end of runs."""
