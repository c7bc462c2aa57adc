"""Short trials that find the best learning rate, batch size, strategy, cuts and other settings for a job."""
