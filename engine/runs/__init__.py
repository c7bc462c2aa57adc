"""Run folders and the life of runs, for the window, the terminal and the supervisor."""
