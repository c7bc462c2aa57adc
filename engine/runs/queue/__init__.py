"""Queue of runs that wait for their devices, so that runs share a device only if the user allows it.

There is no queue process. Each run that waits or uses devices has a file in the folder `queue` of the user's runtime
folder (see `tickets`), which its supervisor keeps locked. When the process ends, for whatever reason, the kernel
releases the lock, and with it the run's position and devices.

A supervisor holds a `QueueSlot`. All other processes read and change the queue with functions.
"""

from __future__ import annotations

from engine.runs.queue.slot import QueueSlot
from engine.runs.queue.tickets import CannotQueue, Ticket, hold, list_holders, list_waiting, move, release

__all__ = ["CannotQueue", "QueueSlot", "Ticket", "hold", "list_holders", "list_waiting", "move", "release"]
