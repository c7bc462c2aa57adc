"""What stands in the way of a job, each problem with its field and what to do. Neither torch nor Qt."""
