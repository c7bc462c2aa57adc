"""The line in which runs wait for their devices, so that two never train on one device unless the user says so.

It needs no process of its own: it is a folder, `queue` in the user's runtime folder, in which every run that waits or
runs has a file (see `tickets`), locked for as long as its supervisor lives. The kernel takes the lock back from a
process that ends, however it ends, and with it the run's place and its devices.

A supervisor stands in line with a `Line`. Everybody else looks at the line and changes it with the functions.
"""

from __future__ import annotations

from engine.runs.queue.line import Line
from engine.runs.queue.tickets import CannotQueue, Ticket, hold, holders, move, release, waiting

__all__ = ["CannotQueue", "Line", "Ticket", "hold", "holders", "move", "release", "waiting"]
