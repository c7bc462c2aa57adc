"""What the exit codes mean."""

COMPLETED = 0
BAD_REQUEST = 2
FAILED = 3
UNSAVED = 4
"""The training came to its end, or was to be paused or stopped, and its last state could not be written to disk."""
INTERRUPTED = 130
