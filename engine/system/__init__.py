"""What knows nothing of training: paths, files, locks, text, and what Linux offers. Neither torch nor Qt."""
