"""What the window knows: runs, and the processes that it asks. No widget is needed for it."""
