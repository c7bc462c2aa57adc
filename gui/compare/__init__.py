"""Page that compares runs."""
