"""Position of a run in the queue, held by its supervisor."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from engine.contract.devices import Snapshot, host_of, is_gpu
from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.runs.folder import RunFolder, process_start
from engine.runs.queue.other_users import OtherUsers, find_other_users
from engine.runs.queue.tickets import (
    CannotQueue,
    LockedQueue,
    QueueBusy,
    Ticket,
    create_name,
    locked_queue,
    queue_folder,
    write_ticket,
)
from engine.runs.searches import trial_of
from engine.system.file_locks import is_same_file, unlock

UNKNOWN_USERS_TIMEOUT_S = 10.0
"""Seconds after which a run starts even if it can't be determined who else uses its GPUs."""
_MAX_SNAPSHOT_AGE_S = 10.0
_LOCK_TIMEOUT_S = 0.1


class QueueSlot:
    """Position of one execution of `run` in the queue, which becomes the reservation of its devices.

    Call `poll` about twice a second, even once `has_devices` is True. The queue's folder is deleted when the user logs
    out, and the reservation must then be recreated. A run that does not have to wait has its devices after the first
    call. If other runs can't see the reservation, or if the run starts although other users may use its GPUs, `warning`
    tells the user so. `run_id` is the id of the run if its folder has another name.

    The lock belongs to this process, so a forked child must close all files of its parent.
    """

    def __init__(self, run: RunFolder, job: Job, run_id: str = "") -> None:
        self.has_devices = False  # True once the run may use its devices
        self.warning = ""  # text for the user if the run starts without the usual guarantees
        trial = trial_of(run)
        self._ticket = Ticket(
            run_id=run_id or run.run_id,
            folder=str(run.path.absolute()),
            pid=os.getpid(),
            start_time=process_start(os.getpid()),
            devices=tuple(dict.fromkeys(job.parallel.devices)),
            since=time.time(),
            search=trial.search if trial is not None else "",
        )
        self._name = create_name()  # of the ticket file
        self._starts_at_once = job.faults.start == "at_once"
        on_gpus = any(is_gpu(device) and not host_of(device) for device in job.parallel.devices)
        self._waits_for_others = job.faults.wait_for_others and on_gpus
        self._descriptor: int | None = None  # open and locked ticket file
        self.ticket_file = Path()
        self._is_closed = False
        self._reported_state: tuple[object, ...] | None = None  # state in the last returned `Waiting`
        self._unknown_since: float | None = None  # time since which other users of the GPUs can't be determined

    def poll(self, snapshot: Snapshot | None = None) -> Waiting | None:
        """Reserve the devices as soon as they are free for the run.

        Until then, return the reason for waiting if it has changed, otherwise None. `snapshot` is needed only for a job
        with `wait_for_others`.

        Raises:
            CannotQueue: The queue can't be used. It is not raised if the run does not have to wait, or already has its
                devices.
        """
        if self._is_closed or (self.has_devices and self._is_visible()):
            return None  # nothing to do, since the ticket exists
        try:
            with locked_queue(_LOCK_TIMEOUT_S) as queue:
                self._enter(queue)
                return None if self.has_devices else self._start_or_wait(queue, snapshot)
        except QueueBusy:
            return None  # retry in the next call
        except CannotQueue as error:
            if not self._starts_at_once and not self.has_devices:
                raise
            if not self.has_devices:
                self.has_devices = True
                self.warning = f"{error} Other runs do not know that this one has its devices."
            return None

    def close(self) -> None:
        """Leave the queue if the run waits, otherwise release its devices."""
        self._is_closed = True
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # The locked ticket is both the position in the queue and the reservation. Unlocking it ends them, even if
            # its file can't be deleted: the next process that reads the queue deletes unlocked tickets.
            with suppress(OSError):
                unlock(descriptor)  # also closes the file
                self.ticket_file.unlink()

    def _is_visible(self) -> bool:
        """Return True if the run's ticket file is still in the queue's folder."""
        try:
            return self._descriptor is not None and is_same_file(self._descriptor, queue_folder() / self._name)
        except OSError:
            return False

    def _enter(self, queue: LockedQueue) -> None:
        """Add the run to the queue unless it is already in it.

        A run that must wait enters at the end. Any other run gets its devices immediately.
        """
        path = queue.folder / self._name
        if not self._starts_at_once and not self.has_devices and self._name not in queue.order:
            queue.order.append(self._name)
            queue.save()  # before the ticket exists, because a ticket outside the order has its devices
        if self._descriptor is None or not is_same_file(self._descriptor, path):
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._descriptor = write_ticket(path, self._ticket)
            self.ticket_file = path
            queue.tickets[self._name] = self._ticket
        self.has_devices = self.has_devices or self._starts_at_once

    def _start_or_wait(self, queue: LockedQueue, snapshot: Snapshot | None) -> Waiting | None:
        """Give the run its devices, and set `has_devices`, if neither a run nor another user's process uses them.

        Otherwise, return the reason for waiting if it has changed, or None.
        """
        ticket = queue.waiting_ticket(self._name)
        if snapshot is not None and abs(time.time() - snapshot.time) > _MAX_SNAPSHOT_AGE_S:
            snapshot = None
        others = find_other_users(ticket.devices, snapshot) if self._waits_for_others else OtherUsers()
        if not ticket.behind and not ticket.held and self._is_alone(others):
            queue.grant_devices(self._name)
            self.has_devices = True
            return None
        assert ticket.position is not None
        # It matters that other users are unknown only if nothing else keeps the run waiting.
        users = others.users or (() if ticket.behind else others.unknown)
        state = (ticket.position, ticket.held, ticket.behind, others.pids, bool(users))
        if state == self._reported_state:
            return None
        self._reported_state = state
        return Waiting(position=ticket.position, behind=ticket.behind, others=users, held=ticket.held)

    def _is_alone(self, others: OtherUsers) -> bool:
        """Return True if no other user uses the devices.

        If this can't be determined for `UNKNOWN_USERS_TIMEOUT_S`, set `warning` and return True.
        """
        if others.users or not others.unknown:
            self._unknown_since = None
            return not others.users
        if self._unknown_since is None:
            self._unknown_since = time.monotonic()
        if time.monotonic() < self._unknown_since + UNKNOWN_USERS_TIMEOUT_S:
            return False
        self.warning = " ".join((*others.unknown, "The run starts without waiting for other users."))
        return True
