"""Panel with the devices, at the left of the window."""
