"""Run folders, and starting, finding, resuming and stopping runs, for the window, the terminal and the supervisor."""
