"""Find the cuts of a job's model by measurements on its devices."""
