"""Exit codes of the commands."""

COMPLETED = 0
BAD_REQUEST = 2
FAILED = 3
UNSAVED = 4
"""The training ended, but its last state could not be written to disk."""
INTERRUPTED = 130
