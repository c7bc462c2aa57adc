"""Supervisor of one run, which starts its workers, writes its log, serves clients, and stops everything at the end.

It uses neither torch nor Qt itself. On Linux, a thread imports torch while clients can already connect, so that workers
can be forked with torch loaded.
"""
