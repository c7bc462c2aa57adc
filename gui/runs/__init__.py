"""The list of runs, past and present, and what can be done with them."""
