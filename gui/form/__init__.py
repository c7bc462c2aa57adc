"""Form that defines a job, and the button that starts it."""
