"""Short trials that find the best learning rate, batch size, strategy, pipeline stages and other settings for a job."""
