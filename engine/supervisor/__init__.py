"""Supervisor of one run: starts its workers, writes its log, serves clients, and ends everything.

It uses neither torch nor Qt. On Linux a thread imports torch while the socket already answers, so that workers can fork
with it.
"""
