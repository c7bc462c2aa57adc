"""Standing in line, as the supervisor of a run does."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from engine.contract.devices import Snapshot, host_of, is_gpu
from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.runs.folder import RunFolder, process_start
from engine.runs.queue.others import Others, others_on
from engine.runs.queue.tickets import Busy, CannotQueue, Table, Ticket, new_name, queue_folder, table, write_ticket
from engine.runs.trials import trial_of
from engine.system.file_locks import give_back, is_at

UNSEEN_S = 10.0
"""How long a run that waits for other people waits to see who they are, before it starts without having seen it."""
_OLD_S = 10.0
"""A snapshot that is older tells of what was."""
_PATIENCE_S = 0.1


class Line:
    """The position in line of one execution of `run`, and then its hold on its job's devices.

    `step` is to be called about twice a second, until `turn` is true and from then on, since the folder of the line is
    cleared when the user logs out, and the hold is then made anew. A run that starts at once has its turn at the first
    step. `warning` is what the user should know of how it came to its turn, "" where there is nothing.

    The lock is the process's own: a child that is forked is to close all files that it has from its parent.
    """

    def __init__(self, run: RunFolder, job: Job) -> None:
        self.turn = False
        self.warning = ""
        trial = trial_of(run)
        self._ticket = Ticket(
            run_id=run.run_id,
            folder=str(run.path.absolute()),
            pid=os.getpid(),
            start_time=process_start(os.getpid()),
            devices=tuple(dict.fromkeys(job.devices)),
            since=time.time(),
            search=trial.search if trial is not None else "",
        )
        self._name = new_name()
        self._at_once = job.start == "at_once"
        self._looks_out = job.wait_for_others and any(is_gpu(device) and not host_of(device) for device in job.devices)
        self._descriptor: int | None = None
        self._path = Path()
        self._closed = False
        self._told: tuple[object, ...] | None = None
        self._unseen_since: float | None = None

    def step(self, snapshot: Snapshot | None = None) -> Waiting | None:
        """Takes the devices where it is this run's turn; else tells what it waits for, where that has changed.

        `snapshot` is needed by a job with `wait_for_others` alone. Raises CannotQueue, but for a run that starts at
        once or has had its turn.
        """
        if self._closed or (self.turn and self._stands()):
            return None
        try:
            with table(_PATIENCE_S) as line:
                self._stand(line)
                return None if self.turn else self._look(line, snapshot)
        except Busy:
            return None  # the next step will tell
        except CannotQueue as error:
            if not self._at_once and not self.turn:
                raise
            if not self.turn:
                self.turn = True
                self.warning = f"{error} Other runs do not know that this one has its devices."
            return None

    def close(self) -> None:
        """Gives back the position and the devices."""
        self._closed = True
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                give_back(descriptor)
                self._path.unlink()

    def _stands(self) -> bool:
        """Whether the ticket is where others look for it."""
        try:
            return self._descriptor is not None and is_at(self._descriptor, queue_folder() / self._name)
        except OSError:
            return False

    def _stand(self, line: Table) -> None:
        """Sees to it that this run is in the line: at its end if it is to wait, and with its devices if not."""
        path = line.folder / self._name
        if not self._at_once and not self.turn and self._name not in line.order:
            line.order.append(self._name)
            line.save()  # first, since a ticket that is not in the order has its devices
        if self._descriptor is None or not is_at(self._descriptor, path):
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._descriptor = write_ticket(path, self._ticket)
            self._path = path
            line.tickets[self._name] = self._ticket
        self.turn = self.turn or self._at_once

    def _look(self, line: Table, snapshot: Snapshot | None) -> Waiting | None:
        seen = line.shown(self._name)
        if snapshot is not None and abs(time.time() - snapshot.time) > _OLD_S:
            snapshot = None
        others = others_on(seen.devices, snapshot) if self._looks_out else Others()
        if not seen.behind and not seen.held and self._nobody_else(others):
            line.leave(self._name)
            self.turn = True
            return None
        assert seen.position is not None
        words = others.words or (others.unseen if not seen.behind else ())
        told = (seen.position, seen.held, seen.behind, others.pids, bool(words))
        if told == self._told:
            return None
        self._told = told
        return Waiting(position=seen.position, behind=seen.behind, others=words, held=seen.held)

    def _nobody_else(self, others: Others) -> bool:
        """Whether no other person is on the devices, as far as can be seen within `UNSEEN_S`."""
        if others.words or not others.unseen:
            self._unseen_since = None
            return not others.words
        if self._unseen_since is None:
            self._unseen_since = time.monotonic()
        if time.monotonic() < self._unseen_since + UNSEEN_S:
            return False
        self.warning = " ".join((*others.unseen, "The run starts without waiting for other users."))
        return True
