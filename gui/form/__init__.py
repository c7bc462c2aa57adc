"""The form that makes a job, and the button that starts it."""
