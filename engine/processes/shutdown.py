"""Shutdown of workers: a message, then SIGTERM to the process group, then SIGKILL, each with a deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from enum import IntEnum

from engine.contract.protocol import Pause, Stop
from engine.processes.worker_process import Worker

STOP_S = 120.0
"""Seconds to finish the current step and save the last state after the user stops the run."""
FAILED_S = 2.0
"""Seconds for an orderly end after another rank's failure; a rank that waits in a collective can't react."""
TERM_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""
KILL_S = 30.0
"""Seconds after SIGKILL until a worker is given up, since a process stuck in a driver call survives it."""


class Stage(IntEnum):
    """Stages of a shutdown, in order."""

    MESSAGE = 0
    TERMINATE = 1
    KILL = 2
    GIVE_UP = 3


class Shutdown:
    """Shutdown of `workers`; call `step` often until all have ended.

    Without a `message`, the workers have nothing left to do and are killed immediately. SIGKILL may interrupt the
    writing of a checkpoint, in which case the previous one remains. `forced` are the ranks that got a signal, `stuck`
    those that survived SIGKILL.
    """

    def __init__(self, workers: Sequence[Worker], orderly_s: float, message: Stop | Pause | None) -> None:
        self._workers = workers
        self._stage = Stage.MESSAGE if message is not None else Stage.TERMINATE
        self.started = time.monotonic()
        self._deadline = self.started + orderly_s
        self.forced: set[int] = set()
        self.stuck: set[int] = set()
        if message is not None:
            for worker in workers:
                worker.send(message)

    def escalate(self, within_s: float = 0.0) -> None:
        """Shorten the time for an orderly end."""
        if self._stage is Stage.MESSAGE:
            self._deadline = min(self._deadline, time.monotonic() + within_s)

    def extend(self, by_s: float) -> None:
        """Allow an orderly end at least `by_s` from now."""
        if self._stage is Stage.MESSAGE:
            self._deadline = max(self._deadline, time.monotonic() + by_s)

    def step(self) -> None:
        """Start the next stage if its time has come."""
        alive = [worker for worker in self._workers if worker.poll() is None]
        now = time.monotonic()
        if not alive or now < self._deadline:
            return
        self._stage = Stage(self._stage + 1)
        self._deadline = now + (KILL_S if self._stage is Stage.KILL else TERM_S)
        self.forced |= {worker.rank for worker in alive}
        for worker in alive:
            if self._stage is Stage.GIVE_UP:
                self.stuck.add(worker.rank)
                give_up(worker)
            else:
                worker.kill(hard=self._stage is Stage.KILL)


def kill_all(workers: Sequence[Worker]) -> None:
    """Kill all workers and wait for their exit, at most `KILL_S`."""
    for worker in workers:
        worker.kill(hard=True)
    deadline = time.monotonic() + KILL_S
    while any(worker.poll() is None for worker in workers):
        if time.monotonic() > deadline:
            for worker in workers:
                give_up(worker)
        time.sleep(0.05)


def give_up(worker: Worker) -> None:
    """Treat a worker that survives SIGKILL as exited."""
    if worker.exit_code is None:
        print(f"Rank {worker.rank} (pid {worker.pid}) survived SIGKILL and is left behind.", flush=True)
        worker.exit_code = -getattr(signal, "SIGKILL", 9)
        worker.close()
