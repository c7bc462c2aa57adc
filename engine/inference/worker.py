"""Worker that reads a request, loads the trained model on its device, and runs the requested work."""

from __future__ import annotations

import importlib
import socket
import time
from functools import reduce
from operator import or_
from pathlib import Path

import msgspec
import torch

from engine.contract.devices import CPU
from engine.contract.events import StepMetrics, Warned
from engine.contract.inference.evaluation import EvaluateRequest
from engine.contract.inference.explanation import ExplainRequest
from engine.contract.inference.messages import InferenceRequest, LiveRequest, ShowRequest
from engine.contract.inference.prediction import PredictRequest
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.inference.sweep import Partition
from engine.inference.trained_model import load
from engine.runs.folder import RunFolder
from engine.strategies.base import worker_device
from engine.system import linux
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.training import worker
from engine.training.report import Reporter

REQUEST_FILE = "request.json"
_REPORT_INTERVAL_S = 0.2

WORKER = "engine.inference.worker:run"
"""Main function of the workers for all requests, as MODULE:NAME."""

_WORK: dict[type[InferenceRequest], str] = {
    EvaluateRequest: "engine.inference.evaluation.measure:evaluate_shard",
    PredictRequest: "engine.inference.prediction.work:predict_shard",
    ExplainRequest: "engine.inference.explanation.explain:explain_images",
    ShowRequest: "engine.inference.showing.show:draw_samples",
    LiveRequest: "engine.inference.live:predict_stream",
}
"""Function that does a worker's part of each type of request, as MODULE:NAME.

It is called with the request, the `TrainedModel` and the `Shard`.
"""


class Shard:
    """Part of the samples that one worker processes, and reporter of the worker's progress.

    Attributes:
        partition: Position of the worker among all workers.
        rank: Number of the worker, which is also in the names of the files that only this worker writes.
        folder: Folder with the request.
    """

    def __init__(self, spec: WorkerSpec, reporter: Reporter) -> None:
        self.partition = Partition(spec.rank, spec.world_size)
        self.rank = spec.rank
        self.folder = Path(spec.run_folder)
        self._reporter = reporter
        self._completed = 0  # samples
        self._reported_at = 0.0  # by `time.monotonic`

    def advance(self, count: int) -> None:
        """Count `count` more completed samples, and report the total at most every `_REPORT_INTERVAL_S` seconds."""
        now = time.monotonic()
        self._completed += count
        self._reporter.set_activity("evaluate")
        if now - self._reported_at >= _REPORT_INTERVAL_S:
            self._reported_at = now
            self.report()

    def report(self) -> None:
        """Send the number of completed samples as the `step` of `StepMetrics`, and the rank plus 1 as the `epoch`.

        The other values are not used.
        """
        self._reporter.send(
            StepMetrics(
                epoch=self.rank + 1,
                step=self._completed,
                loss=0.0,
                learning_rate=0.0,
                images_per_second=0.0,
                data_wait_s=0.0,
                compute_s=0.0,
            )
        )

    def warn_unreadable(self, path: str, reason: str) -> None:
        """Send a warning about a skipped sample that can't be read."""
        message = f"Skipping {path}: {reason}"
        self._reporter.send(Warned(code="inference", message=message, rank=self.rank))


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Run this process as a worker for the request in its folder, and return the exit code.

    The function that `_WORK` names for the type of the request is called with the loaded model. See
    `engine.training.worker.run_reporting` for the handling of errors.
    """

    def run_request(reporter: Reporter) -> WorkerDone:
        """Load the request and its model, and process this worker's part of the samples."""
        reporter.set_phase("preparing")
        content = read_file(Path(spec.run_folder, REQUEST_FILE), MAX_RESULT_BYTES)
        request: InferenceRequest = msgspec.json.decode(content, type=reduce(or_, _WORK))
        module, _, name = _WORK[type(request)].partition(":")
        work = getattr(importlib.import_module(module), name)
        torch.set_num_threads(spec.threads)
        if CPU in spec.devices:
            linux.keep_freed_memory()
        model = load(RunFolder(request.run), request.checkpoint, str(worker_device(spec)))
        shard = Shard(spec, reporter)
        reporter.set_phase("validating")
        work(request, model, shard)
        shard.report()  # the final number of samples
        return WorkerDone(stopped=False)

    return worker.run_reporting(spec, channel, run_request)
