"""Form that creates a job, and the button that starts it."""
