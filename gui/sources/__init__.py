"""Data sources of the window, without widgets: runs, devices and the window's child processes."""
