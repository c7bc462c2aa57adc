"""Where a model is wrong: its samples by loss, one of them large, and those that are marked."""
