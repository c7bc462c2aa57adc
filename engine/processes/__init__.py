"""Child processes, which are mostly workers of a run. This includes their start, watchdog and shutdown."""
