"""Search for the best cuts of a job's model, by measurements on its devices."""
