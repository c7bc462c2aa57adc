"""What ``python -m engine.inference`` is asked, what it says, and what it leaves: a file for each kind of work."""
