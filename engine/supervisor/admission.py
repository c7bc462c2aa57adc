"""What stands before a run's workers: the line for its devices, and the imports that workers are forked from."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Sequence

import msgspec

from engine.checks.gpu_support import gpu_problems
from engine.checks.torch_build import installed_torch
from engine.contract.devices import host_of, is_gpu
from engine.contract.events import PhaseChanged, Waiting, Warned
from engine.contract.job import Job
from engine.processes.imports import ImportThread
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue, QueueSlot
from engine.supervisor.sampling import Sampler

LOOK_S = 0.5
"""Seconds between checks of the queue."""
JUDGED_S = 3.0
"""How long the GPUs may take to be found free: NVML wakes them, and for a while still lists processes that have
ended."""
CPU_SAMPLER_DELAY_S = 2.0
"""On the CPU, starting the sampler would compete with the first steps."""


class Admission:
    """Waits for the run's turn, without PyTorch and as far as may be without a sampler, and then has `modules` imported
    and sees whether its GPUs can be trained on.

    `step` is called often, for as long as the run goes on. `open` says whether the workers can be started, and `fault`
    why they never can be; `news` holds what is to be told, for the caller to take.
    """

    def __init__(
        self, run: RunFolder, job: Job, sampler: Sampler, selector: selectors.BaseSelector, modules: Sequence[str]
    ) -> None:
        self.fault = ""
        self.news: list[Waiting | Warned | PhaseChanged] = []
        self._slot = QueueSlot(run, job)
        self._job = msgspec.structs.replace(job, start="at_once")  # once it has its turn, it waits for nobody
        self._turn_at = 0.0
        self._on_gpus = any(is_gpu(device) and not host_of(device) for device in job.devices)
        self._fit = not self._on_gpus
        self._looks_out = self._on_gpus and job.wait_for_others
        self._sampler = sampler
        self._selector = selector
        self._modules = modules
        self._imports: ImportThread | None = None
        self._look_at = 0.0
        self._waited = False
        if self._on_gpus:
            sampler.start()  # which has their names

    @property
    def turn(self) -> bool:
        """Whether the devices are the run's."""
        return self._slot.has_devices

    @property
    def open(self) -> bool:
        return self._slot.has_devices and self._fit and self._imports is None and not self.fault

    def step(self, *, named: bool) -> None:
        """Looks at the line where that is due. Once the run's devices are `named`, waiting needs no sampler for it."""
        now = time.monotonic()
        if self._slot.has_devices and not self._fit and not self.fault:
            self._judge(late=now > self._turn_at + JUDGED_S)
        if now < self._look_at or self.fault:
            return
        self._look_at = now + LOOK_S
        waited = not self._slot.has_devices
        try:
            waiting = self._slot.poll(self._sampler.latest)
        except CannotQueue as error:
            self.fault = str(error)
            return
        if waiting is not None:
            self._waited = True
            self.news.append(waiting)
        if waited and self._slot.has_devices:
            self._prepare()
        elif waited and named and not self._looks_out:
            self._sampler.close()

    def close(self) -> None:
        """Gives the devices back."""
        self._slot.close()

    def _judge(self, *, late: bool) -> None:
        """Lets the run through as soon as nothing is seen to speak against its GPUs; refuses it if something still does
        when it is `late`.
        """
        machine = self._sampler.latest if self._sampler.latest_at > self._turn_at else None
        seen = machine is not None and machine.nvml.status != "not_answering"
        found = gpu_problems(self._job, machine, installed_torch(), os.environ)
        self._fit = not found and (seen or late)
        if found and late:
            self.fault = " ".join(map(str, found))

    def _prepare(self) -> None:
        self._turn_at = time.monotonic()
        if self._waited:
            self.news.append(PhaseChanged(phase="starting"))
        if self._slot.warning:
            self.news.append(Warned(code="queue", message=self._slot.warning))
        self._sampler.start(0.0 if self._on_gpus else CPU_SAMPLER_DELAY_S)
        if self._modules:
            self._imports = ImportThread(self._modules)
            self._selector.register(self._imports.done, selectors.EVENT_READ, self._imported)

    def _imported(self, _mask: int) -> None:
        assert self._imports is not None
        self._selector.unregister(self._imports.done)
        self._imports.join()
        fault, self._imports = self._imports.fault, None
        if fault is not None:
            self.fault = f"PyTorch could not be imported: {fault}. Run `footplate doctor` for details."
