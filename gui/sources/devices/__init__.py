"""What the window knows of the devices of this machine and of others."""
