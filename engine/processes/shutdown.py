"""Shutdown of workers: first a message, then SIGTERM, then SIGKILL, each with a time limit."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from enum import IntEnum

from engine.contract.protocol import Pause, Stop
from engine.processes.worker_process import Worker

STOP_S = 120.0
"""Maximum time for workers to finish their step and save their state after the user has stopped the run, in seconds."""
FAILED_S = 2.0
"""Maximum time for an orderly exit after another rank has failed, in seconds.

Ranks that wait in a collective can't react to a message.
"""
TERM_S = 5.0
"""Time between SIGTERM and SIGKILL in seconds."""
KILL_S = 30.0
"""Time between SIGKILL and the moment when a worker counts as stuck, in seconds.

A process that is stuck in a driver call survives SIGKILL.
"""


class Stage(IntEnum):
    """Stage in the shutdown of a run's workers. Stages follow each other in this order."""

    MESSAGE = 0
    TERMINATE = 1
    KILL = 2
    GIVE_UP = 3


class Shutdown:
    """Shutdown of `workers`. `step` must be called often until all of them have exited.

    With a `message`, workers have `orderly_s` seconds to save their state and exit. Without a message, they have
    nothing to save, and are killed sooner. If SIGKILL interrupts the writing of a checkpoint, the previous checkpoint
    remains. `forced` has the ranks that received a signal, and `stuck` the ranks that survived SIGKILL.
    """

    def __init__(self, workers: Sequence[Worker], orderly_s: float, message: Stop | Pause | None) -> None:
        self._workers = workers
        self._stage = Stage.MESSAGE if message is not None else Stage.TERMINATE
        self.started = time.monotonic()
        self._deadline = self.started + orderly_s
        self.forced: set[int] = set()  # ranks that received a signal
        self.stuck: set[int] = set()  # ranks that survived SIGKILL
        if message is not None:
            for worker in workers:
                worker.send(message)

    def escalate(self, within_s: float = 0.0) -> None:
        """Reduce the time for an orderly exit, so that it ends at most `within_s` from now."""
        if self._stage is Stage.MESSAGE:
            self._deadline = min(self._deadline, time.monotonic() + within_s)

    def extend(self, by_s: float) -> None:
        """Extend the time for an orderly exit, so that it ends at least `by_s` from now."""
        if self._stage is Stage.MESSAGE:
            self._deadline = max(self._deadline, time.monotonic() + by_s)

    def step(self) -> None:
        """Start the next stage of the shutdown if the time limit of the current one has passed.

        It sends a signal to the workers that remain. In the last stage, they are treated as if they had exited.
        """
        alive = [worker for worker in self._workers if worker.poll() is None]  # without those that were given up
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
    """Kill all workers, and wait until they have exited. After `KILL_S` seconds, the remaining ones are given up."""
    for worker in workers:
        worker.kill(hard=True)
    deadline = time.monotonic() + KILL_S
    while any(worker.poll() is None for worker in workers):
        if time.monotonic() > deadline:
            for worker in workers:
                give_up(worker)
        time.sleep(0.05)


def give_up(worker: Worker) -> None:
    """Treat a worker that has survived SIGKILL as if it had exited: close its channel and set its exit code."""
    if worker.poll() is None:
        print(f"Rank {worker.rank} (pid {worker.pid}) survived SIGKILL and is left behind.", flush=True)
        worker.exit_code = -getattr(signal, "SIGKILL", 9)
        worker.close()
