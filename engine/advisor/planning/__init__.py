"""Where a job would cut its model, found before the training by measuring on the job's devices."""
