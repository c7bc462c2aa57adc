"""Child processes: the workers of a run or another task, how they start, are watched and end, and helpers around them."""
