"""Child processes: workers of a run or of other work, their start, watchdog and shutdown, and helpers."""
