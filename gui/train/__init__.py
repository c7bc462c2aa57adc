"""Train page: the form of a new job, and the runs that are open."""
