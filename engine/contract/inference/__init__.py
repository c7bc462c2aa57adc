"""Requests to ``python -m engine.inference`` and their results. Each module covers one kind of work."""
