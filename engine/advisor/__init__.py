"""Find a job's learning rate, batch size, strategy, cuts and other settings by short trials."""
