"""What to choose for a job, found by short trials of it before it is trained: its learning rate and its batch size."""
