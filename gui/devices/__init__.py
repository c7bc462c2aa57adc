"""Panel of the devices at the left of the window."""
