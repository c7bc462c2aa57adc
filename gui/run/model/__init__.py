"""What a run's model is worth: its evaluations, where it is wrong, and what it looks at."""
