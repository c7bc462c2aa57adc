"""Search for the best split of a job's model into pipeline stages, by measurements on the job's devices."""
