"""Train page: the form for a new job, and the open runs."""
