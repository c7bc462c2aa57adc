"""Requests and results of ``python -m engine.inference``, a file for each kind of work."""
