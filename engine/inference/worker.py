"""What every worker does that goes over samples with a trained model: it takes its orders and loads the model on its
device.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import torch

from engine.contract.devices import CPU, is_gpu
from engine.contract.events import StepMetrics, Warned
from engine.contract.inference.messages import Order
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.inference.sweep import Part
from engine.inference.trained_model import TrainedModel, load
from engine.runs.folder import RunFolder
from engine.system import linux
from engine.training import worker
from engine.training.report import Reporter

ORDER_FILE = "order.json"
_TOLD_S = 0.2

Given = TypeVar("Given", bound=Order)


class Share:
    """A worker's `part` of the samples, and how it says how far it has come; `rank` tells its files from those of
    others.
    """

    def __init__(self, spec: WorkerSpec, reporter: Reporter) -> None:
        self.part = Part(spec.rank, spec.world_size)
        self.rank = spec.rank
        self.folder = Path(spec.run_folder)
        self._reporter = reporter
        self._done = 0
        self._told = 0.0

    def progressed(self, count: int) -> None:
        """Says that so many more samples are done."""
        now = time.monotonic()
        self._done += count
        self._reporter.set_activity("evaluate")
        if now - self._told >= _TOLD_S:
            self._told = now
            self._tell()

    def warn(self, message: str) -> None:
        """Says what the user should know, in a sentence."""
        self._reporter.send(Warned(code="inference", message=message, rank=self.rank))

    def finish(self) -> None:
        """Says how many samples were done."""
        self._tell()

    def _tell(self) -> None:
        """In the event that says how far a run has come; its `epoch` is this worker's number, from 1 on."""
        self._reporter.send(
            StepMetrics(
                epoch=self.rank + 1,
                step=self._done,
                loss=0.0,
                learning_rate=0.0,
                images_per_second=0.0,
                data_wait_s=0.0,
                compute_s=0.0,
            )
        )

    def skip(self, path: str, reason: str) -> None:
        """Says that a sample can't be read."""
        self.warn(f"Skipping {path}: {reason}")


def serve(
    spec: WorkerSpec, channel: socket.socket, kind: type[Given], work: Callable[[Given, TrainedModel, Share], None]
) -> int:
    """Does `work` with the order in the worker's folder; its exit code (see `engine.training.worker.reported`)."""

    def do(reporter: Reporter) -> WorkerDone:
        reporter.set_phase("preparing")
        order = msgspec.json.decode((Path(spec.run_folder) / ORDER_FILE).read_bytes(), type=kind)
        torch.set_num_threads(spec.threads)
        if CPU in spec.devices:
            linux.keep_freed_memory()
        model = load(RunFolder(order.run), order.checkpoint, _device(spec))
        share = Share(spec, reporter)
        reporter.set_phase("validating")
        work(order, model, share)
        share.finish()
        return WorkerDone(stopped=False)

    return worker.reported(spec, channel, do)


def _device(spec: WorkerSpec) -> str:
    """What torch calls the device of the worker's rank: a GPU is numbered among those that it sees."""
    device = spec.devices[spec.rank]
    return f"cuda:{[each for each in spec.devices if is_gpu(each)].index(device)}" if is_gpu(device) else CPU
