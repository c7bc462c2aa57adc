"""Workers that belong to no run's supervisor: started and watched as those of a run, until all have ended."""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Sequence

from engine.contract.events import AnyEvent, Failed
from engine.contract.worker import WorkerSpec
from engine.supervisor.workers.group import Group
from engine.supervisor.workers.watchdog import LIMITS
from engine.supervisor.workers.worker_process import can_fork

_TICK_S = 0.05


def run_workers(
    specs: Sequence[WorkerSpec], function: str, emit: Callable[[AnyEvent], object], *, seconds: float = math.inf
) -> Failed | None:
    """Runs `function` (see `WorkerProcess`) for each of `specs`, to the end; why they failed, if they did.

    `emit` is given their events. Whatever is raised meanwhile, as by Ctrl+C, ends them at once. Raises TimeoutError
    where they take longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        group = Group(emit, selector, len(specs), LIMITS)
        try:
            group.launch(specs, function, fork=can_fork())
            while not group.gone:
                for key, mask in selector.select(_TICK_S):
                    key.data(mask)
                group.watch()
                if time.monotonic() > deadline:
                    raise TimeoutError
        finally:
            group.kill()
            for worker in group.workers:
                worker.close()
    return group.failure
