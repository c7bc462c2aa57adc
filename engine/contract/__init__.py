"""Data and messages that the window, the command line and the engine exchange."""
