"""Queue in which runs wait for their devices, so that two never share one unless the user says so.

There is no queue process: each run that waits or runs has a file in the folder `queue` of the user's runtime folder
(see `tickets`), which its supervisor keeps locked. When a process ends in whatever way, the kernel releases the lock,
and with it the run's position and devices.

A supervisor holds a `QueueSlot`; everybody else reads and changes the queue with the functions.
"""

from __future__ import annotations

from engine.runs.queue.slot import QueueSlot
from engine.runs.queue.tickets import CannotQueue, Ticket, hold, holders, move, release, waiting

__all__ = ["CannotQueue", "QueueSlot", "Ticket", "hold", "holders", "move", "release", "waiting"]
