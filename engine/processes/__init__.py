"""Child processes: the workers of a run or another task, their start, watchdog and shutdown, and helpers for them."""
