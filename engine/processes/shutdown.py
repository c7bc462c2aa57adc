"""Ending workers, always: a message, then SIGTERM to the group, then SIGKILL, each with a deadline."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.contract.protocol import Pause, Stop
from engine.processes.worker_process import Worker

STOP_S = 120.0
"""After the user's stop: finishing the current step and saving the last state may take this long."""
FAILED_S = 2.0
"""After another rank's failure: a rank that waits for it in a collective won't answer anyway."""
TERM_S = 5.0


class Shutdown:
    """Ends `workers`. `step` is called often, until all are gone; `forced` names the ranks that needed a signal.

    Without a `message` there is nothing that they should still do, and SIGKILL comes first. A checkpoint that is being
    written is then cut short, which leaves the one before it.
    """

    def __init__(self, workers: Sequence[Worker], polite_s: float, message: Stop | Pause | None) -> None:
        self._workers = workers
        self._stage = 0 if message is not None else 1
        self.began = time.monotonic()
        self._deadline = self.began + polite_s
        self.forced: set[int] = set()
        if message is not None:
            for worker in workers:
                worker.send(message)

    def hurry(self, within_s: float = 0.0) -> None:
        """Shortens the wait for an orderly end."""
        if self._stage == 0:
            self._deadline = min(self._deadline, time.monotonic() + within_s)

    def wait_longer(self, for_s: float) -> None:
        """Gives an orderly end so long from now on."""
        if self._stage == 0:
            self._deadline = max(self._deadline, time.monotonic() + for_s)

    def step(self) -> None:
        left = [worker for worker in self._workers if worker.poll() is None]
        now = time.monotonic()
        if not left or now < self._deadline:
            return
        self._stage += 1
        self._deadline = now + TERM_S
        self.forced |= {worker.rank for worker in left}
        for worker in left:
            worker.kill(hard=self._stage > 1)
