"""Gate for the start of a run's workers, which waits for weights, a queue slot, usable GPUs and imported modules."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlparse

import msgspec

from engine.checks.gpu_checks import gpu_problems
from engine.checks.torch_support import find_installed_torch
from engine.contract.catalogue import load_catalogue, weights_of
from engine.contract.devices import host_of, is_gpu
from engine.contract.events import EVENT, AnyEvent, Failed, Fetching, PhaseChanged, Warned
from engine.contract.job import Job
from engine.contract.weights import Weights, find_weights
from engine.processes.imports import ImportThread
from engine.processes.line_child import LineChild
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue, QueueSlot
from engine.runs.resume import checkpoint_of
from engine.supervisor.sampling import Sampler
from engine.system.format import describe_exit

POLL_S = 0.5
"""Seconds between polls of the queue."""
GPU_STATE_S = 3.0
"""Maximum time to wait for the state of the GPUs, in seconds. NVML must wake them."""
GPU_PROBLEM_S = 3.0
"""Time in seconds that a run's GPUs have to become usable. NVML still lists exited processes for a while."""
CPU_SAMPLER_DELAY_S = 2.0
"""Delay of the sampler's start in runs on the CPU, in seconds. Its start would slow their first steps."""


class StartGate:
    """Gate that holds a run until its weights, queue slot, GPUs and imports are ready, in this order.

    `step` must be called often, even while `is_open` is True, because the slot must be renewed. `failure` is set if the
    workers can never start. To save resources, a waiting run does not import PyTorch. It runs the sampler only if it
    needs the names of its GPUs, or must wait for other users' processes on them.
    """

    def __init__(
        self, run: RunFolder, job: Job, sampler: Sampler, selector: selectors.BaseSelector, modules: Sequence[str]
    ) -> None:
        self.failure: Failed | None = None  # failure that prevents the start
        self._job = job.with_fields(start="at_once")  # a run that has its slot waits for no other run
        self._sampler = sampler
        self._selector = selector
        self._modules = modules
        self._events: list[AnyEvent] = []
        self._weights = WeightsFetch(run, job, selector, self._events.append)
        self._slot = QueueSlot(run, job)
        self._slot_since = 0.0  # time since which the run has its slot
        self._poll_at = 0.0  # time of the next poll of the queue
        self._has_waited = False  # True once the run has waited in the queue
        self._on_gpus = any(is_gpu(device) and not host_of(device) for device in job.parallel.devices)
        self._is_gpu_check_done = not self._on_gpus
        self._needs_sampler = self._on_gpus and job.faults.wait_for_others  # it shows other users' processes
        self._imports: ImportThread | None = None
        if self._on_gpus:
            sampler.start()  # it reports the GPUs' names

    @property
    def has_slot(self) -> bool:
        """True while the run's devices are reserved for it."""
        return self._slot.has_devices

    @property
    def is_open(self) -> bool:
        """True if the workers can be started."""
        return self.has_slot and self._is_gpu_check_done and self._imports is None and self.failure is None

    def take_events(self) -> list[AnyEvent]:
        """Return the events for the run's log that have occurred since the last call."""
        events = self._events.copy()
        self._events.clear()
        return events

    def step(self, *, are_devices_named: bool) -> None:
        """Poll the weights, the queue slot and the GPUs, and proceed to the next condition of the start.

        `are_devices_named` is True once the names of the devices are known. The sampler may then stop while the run
        waits in the queue.
        """
        if self._weights.fault:
            self.failure = Failed(cause=self._weights.fault, field="pretrained")
        if self.failure is not None or not self._weights.is_done:
            return
        now = time.monotonic()
        if self.has_slot and not self._is_gpu_check_done:
            self._check_gpus(now - self._slot_since)
        if now >= self._poll_at:
            self._poll_at = now + POLL_S
            self._poll_queue(are_devices_named=are_devices_named)

    def cancel(self) -> None:
        """Stop the download of weights, but keep the devices reserved until `close`."""
        self._weights.close()

    def close(self) -> None:
        """Stop the download of weights and release the devices."""
        self._weights.close()
        self._slot.close()

    def _poll_queue(self, *, are_devices_named: bool) -> None:
        """Renew the queue slot if the run has one, otherwise try to get one. Prepare the start once the run has it."""
        if self.has_slot:
            self._slot.poll(self._sampler.latest)
            return
        try:
            waiting = self._slot.poll(self._sampler.latest)
        except CannotQueue as error:
            self.failure = Failed(cause=str(error))
            return
        if waiting is not None:
            self._has_waited = True
            self._events.append(waiting)
        if self.has_slot:
            self._prepare()
        elif are_devices_named and not self._needs_sampler:
            self._sampler.close()

    def _check_gpus(self, waited_s: float) -> None:
        """Check if the run's GPUs are usable, and set `_is_gpu_check_done` if they are.

        `waited_s` is the time since the run got its slot. Problems after `GPU_PROBLEM_S` set `failure`. GPUs whose state
        is unknown after `GPU_STATE_S` count as usable. In all other cases, the check is repeated.
        """
        snapshot = self._sampler.latest if self._sampler.latest_at > self._slot_since else None
        is_known = snapshot is not None and snapshot.nvml.status != "not_answering"
        problems = gpu_problems(self._job, snapshot, find_installed_torch(), os.environ)
        self._is_gpu_check_done = not problems and (is_known or waited_s > GPU_STATE_S)
        if problems and waited_s > GPU_PROBLEM_S:
            self.failure = Failed(cause=" ".join(map(str, problems)))

    def _prepare(self) -> None:
        """Start the sampler and the imports. This is called when the devices have been reserved."""
        self._slot_since = time.monotonic()
        if self._has_waited:
            self._events.append(PhaseChanged(phase="starting"))
        if self._slot.warning:
            self._events.append(Warned(code="queue", message=self._slot.warning))
        self._sampler.start(0.0 if self._on_gpus else CPU_SAMPLER_DELAY_S)
        if self._modules:
            self._imports = ImportThread(self._modules)
            self._selector.register(self._imports.done, selectors.EVENT_READ, self._on_imported)

    def _on_imported(self, _mask: int) -> None:
        """Handle the end of the thread that imports PyTorch. If that failed, set `failure`."""
        assert self._imports is not None
        self._selector.unregister(self._imports.done)
        self._imports.join()
        fault, self._imports = self._imports.fault, None
        if fault is not None:
            cause = f"PyTorch could not be imported: {fault}. Run `footplate doctor` for details."
            self.failure = Failed(cause=cause)


class WeightsFetch:
    """Child process that downloads or verifies the pretrained weights for a job.

    `is_done` is True when the weights are ready, and from the beginning if the run needs none. `fault` is the reason
    why the run can't start, or "".
    """

    def __init__(
        self, run: RunFolder, job: Job, selector: selectors.BaseSelector, emit: Callable[[AnyEvent], object]
    ) -> None:
        self.fault = ""  # reason why the weights can't be used
        self._selector = selector
        self._emit = emit
        self._child: LineChild | None = None
        is_needed = job.model.pretrained and not job.model.weights_file and not checkpoint_of(run)
        weights = weights_of(job, load_catalogue()) if is_needed else None
        self.is_done = weights is None  # the worker reports an error if the model has no known weights
        if weights is not None:
            self._start(weights)

    def close(self) -> None:
        """Stop the download. The child deletes the incomplete file."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _start(self, weights: Weights) -> None:
        """Start the child process, or set `fault`. Report the download if the weights are not on the disk."""
        self._is_download = not find_weights(weights).path
        if self._is_download:
            name = weights.repository or weights.files[0]
            detail = f"the pretrained weights {name} from {urlparse(weights.host).netloc}"
            self._emit(PhaseChanged(phase="fetching", detail=detail))
        arguments = ("engine.models.fetch", msgspec.json.encode(weights).decode())
        try:
            self._child = LineChild(self._selector, arguments, self._on_line, self._on_end)
        except OSError as error:
            self.fault = (
                f"The process that downloads the pretrained weights can't be started: {error.strerror or error}. "
                "End other programs, then resume the run."
            )

    def _on_line(self, line: bytes) -> None:
        """Handle an encoded event from the child: store a failure in `fault`, or report progress of the download."""
        event = EVENT.decode(line)
        if isinstance(event, Failed):
            self.fault = event.cause
        elif isinstance(event, Fetching):
            self._emit(event)

    def _on_end(self, error: str) -> None:
        """Handle the end of the child's output, and set `is_done` or `fault`. `error` describes an invalid line, or is ""."""
        assert self._child is not None
        if error and not self.fault:
            self.fault = f"The process that downloads the pretrained weights sent an invalid message: {error}."
        code = self._child.process.wait()
        if code and not self.fault:
            self.fault = f"The process that downloads the pretrained weights {describe_exit(code)}. See supervisor.log."
        self.is_done = not self.fault
        if self.is_done and self._is_download:
            self._emit(PhaseChanged(phase="starting"))
        self.close()
