"""What the window, the terminal and the engine say to each other, and nothing more.

Neither torch nor Qt is imported here, and nothing of Footplate but `engine.system`, so that it loads in milliseconds
and both sides can depend on it.
"""
