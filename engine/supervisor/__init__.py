"""Supervisor of one run, which starts its workers, writes its log, serves clients, and stops everything in the end.

It uses neither torch nor Qt directly. On Linux, a thread imports torch while the socket is already served, so that
workers can be forked with it.
"""
