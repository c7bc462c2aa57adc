"""Carry out a request on its devices: wait in the queue, then start one worker per device."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.contract.events import AnyEvent, StepMetrics, Warned
from engine.contract.inference.messages import InferenceRequest
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.contract.worker import WorkerSpec
from engine.inference.trained_model import CannotLoad
from engine.inference.worker import REQUEST_FILE, WORKER
from engine.processes.group import run_workers
from engine.processes.imports import BASIC, import_all
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue, QueueSlot
from engine.supervisor.environment import usable_cores
from engine.system import paths
from engine.system.format import counted

POLL_S = 0.5
"""Seconds between two checks if the queue has given the devices to the request."""

_MIN_MEASURED_S = 1.0
"""Minimum time in seconds after the first sample before a speed is reported, since it is unreliable until then."""

OnProgress = Callable[[Progress], object]
"""Callback that receives the progress of a request."""


def run_on_devices(request: InferenceRequest, folder: Path, on_progress: OnProgress, *, total: int, what: str) -> None:
    """Carry out the request in one worker on each requested device (see `engine.inference.worker`).

    The request is written to `folder`, where the workers find it. The workers start when the queue has assigned the
    devices to this request. `on_progress` receives the progress of all workers together, with the text `what` for the
    user. `total` is the number of samples, or 0 if unknown. Raises CannotLoad if the workers fail or there is no queue.
    """
    run = RunFolder(request.run)
    job = run.job()
    assert job is not None  # checked before the request was sent
    job = job.with_fields(
        devices=request.devices, start="at_once" if request.at_once else "when_free", wait_for_others=False
    )
    paths.write_atomically(folder / REQUEST_FILE, msgspec.json.encode(request))
    worker_count = len(request.devices)
    slot = QueueSlot(run, job)
    try:
        _wait_in_queue(slot, on_progress)
        on_progress(Progress(fraction=0.0, what="Loading PyTorch"))
        if sys.platform == "linux":  # workers are forked with the modules that this process has imported
            import_all(BASIC)
        on_progress(Progress(fraction=0.0, what="Loading the model"))
        specs = [
            WorkerSpec(
                run_folder=str(folder),
                job=job,
                rank=rank,
                world_size=worker_count,
                devices=request.devices,
                rendezvous="",  # the workers do not communicate
                threads=max(1, usable_cores() // worker_count),
            )
            for rank in range(worker_count)
        ]
        failure = run_workers(specs, WORKER, _WorkersProgress(total, what, on_progress).on_event)
    finally:
        slot.close()
    if failure is not None:
        raise CannotLoad(Problem("batch_size" if failure.kind == "out_of_memory" else failure.field, failure.cause))


def _wait_in_queue(slot: QueueSlot, on_progress: OnProgress) -> None:
    """Wait in the queue until the devices are free. Raises CannotLoad if the queue can't be used."""
    while True:
        try:
            waiting = slot.poll()
        except CannotQueue as error:
            raise CannotLoad(Problem("devices", str(error))) from error
        if slot.has_devices:
            return
        if waiting is not None:
            queue_text = f": {counted(len(waiting.behind), 'run')} before this" if waiting.behind else ""
            on_progress(Progress(fraction=0.0, what=f"Waiting for the devices{queue_text}"))
        time.sleep(POLL_S)


class _WorkersProgress:
    """Progress of a request, summed up from the events of all workers."""

    def __init__(self, total: int, what: str, on_progress: OnProgress) -> None:
        self._total = total
        self._what = what
        self._on_progress = on_progress
        self._completed_by_epoch: dict[int, int] = {}  # number of completed samples of each worker
        self._started: float | None = None  # time of the first report of a worker

    def on_event(self, event: AnyEvent) -> None:
        """Report the progress after an event of a worker, which is a warning or the number of completed samples.

        A worker's `Shard` sends this number as the `step` of `StepMetrics`, and its rank plus 1 as the `epoch`. Other
        events are ignored.
        """
        if isinstance(event, Warned):
            self._report((event.message,))
        elif isinstance(event, StepMetrics):
            self._started = self._started or time.monotonic()
            self._completed_by_epoch[event.epoch] = event.step
            self._report()

    def _report(self, warnings: tuple[str, ...] = ()) -> None:
        """Report the progress of all workers. Speed and remaining time are None until they are reliable."""
        completed = sum(self._completed_by_epoch.values())
        seconds = time.monotonic() - self._started if self._started is not None else 0.0
        rate = completed / seconds if completed and seconds >= _MIN_MEASURED_S else None
        self._on_progress(
            Progress(
                fraction=min(1.0, completed / self._total) if self._total else 0.0,
                what=self._what,
                seconds_left=max(0, self._total - completed) / rate if rate and self._total else None,
                images_per_second=rate,
                warnings=warnings,
            )
        )
