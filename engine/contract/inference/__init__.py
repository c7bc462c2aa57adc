"""Requests and results of ``python -m engine.inference``, in one file for each kind of work."""
