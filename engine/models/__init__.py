"""Vision models and their initial weights."""
