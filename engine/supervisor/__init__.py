"""One process per run: it starts the workers, keeps the log, answers the socket, and ends everything.

It imports neither torch nor Qt by itself. On Linux torch is imported in a thread while the socket already
answers, so that the workers can be forked with it in place.
"""
