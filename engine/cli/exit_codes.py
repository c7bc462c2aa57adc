"""What the exit codes mean."""

COMPLETED = 0
BAD_REQUEST = 2
FAILED = 3
INTERRUPTED = 130
