"""How a run does on each class."""
