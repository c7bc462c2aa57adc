"""Data sources of the window, without widgets: runs, devices, and the child processes that work for it."""
