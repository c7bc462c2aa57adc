"""What each part of a job's model costs on each of its devices, measured one after another in this process."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from engine.contract.cut import Cut
from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.data.datasets.images import DatasetError
from engine.models.base import TaskError
from engine.models.classification_models import MNIST_CNN
from engine.models.registry import is_foreign
from engine.parallel.cut import CannotCut
from engine.parallel.layout import layout
from engine.strategies import STRATEGIES
from engine.strategies.base import autocast, clock, settled_precision, use_fast_kernels
from engine.strategies.distributed import LOOPBACK
from engine.strategies.pipelining.model_split import Traces, trace
from engine.strategies.pipelining.stage_costs import TRAVELLING_BYTES, TRAVELS, CutPointCosts, assemble, measure_rank
from engine.system.format import counted
from engine.tasks.registry import TASKS

NO_DATASET = (1000, 3)
"""Classes and channels when no dataset is chosen yet: ImageNet's, as in the catalogue. Only the last layer
depends on the classes, and only the first on the channels."""
NO_DIGITS = (10, 1)
"""The same for `mnist_cnn`."""
TRAVEL_TIMEOUT = timedelta(seconds=30)
BUILT = 0.2
"""The share of the progress bar until the model is built and traced."""

OnProgress = Callable[[float, str], None]


class Refused(Exception):  # noqa: N818 - it is an answer about a job, not a fault
    """The job's model cannot be cut as it asks."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def plan(job: Job, threads: int, progress: OnProgress) -> Cut:
    """The cut of `job` on its first replica's devices, with `threads` for a worker on the CPU.

    Weights are drawn, never loaded: what they are does not change what they cost. Raises Refused.
    """
    entry = STRATEGIES[job.strategy].entry
    if not entry.cuts_model:
        raise Refused(
            Problem("strategy", f"{entry.title} does not split the model into stages.", "Choose a strategy that does.")
        )
    torch.set_num_threads(job.cpu_threads or threads)
    job = msgspec.structs.replace(job, precision=settled_precision(job))
    if any(map(is_gpu, job.devices)):
        use_fast_kernels()
    progress(0.0, "Building the model")
    model, channels = _model(job)
    laid = layout(job, entry)
    try:
        traces = trace(model)
        images = max(1, job.batch_size // (laid.replicas * job.accumulation * (laid.microbatches or 1)))
        size = TASKS[job.task].image_size(job)
        shape = (images, channels, size, size)
        gathered = _rank_costs(job, model, traces, shape=shape, group=laid.group, progress=progress)
        travel = max((_seconds_per_byte(one, other) for one, other in _neighbours(job, laid.group)), default=0.0)
        return assemble(model, traces, job=job, layout=laid, gathered=gathered, travel=travel)
    except CannotCut as reason:
        message = f"The model can't be split into stages: {reason}."
        raise Refused(Problem(reason.field, message, reason.remedy)) from reason


def _model(job: Job) -> tuple[nn.Module, int]:
    """The job's model with fresh weights, and the channels of its images."""
    classes, channels = NO_DIGITS if job.model == MNIST_CNN else NO_DATASET
    try:
        if job.dataset:
            splits = TASKS[job.task].splits(job)
            classes, channels = len(splits.classes), splits.channels
        fresh = msgspec.structs.replace(job, pretrained=False, weights_file="")
        return TASKS[job.task].build_model(fresh, classes, channels), channels
    except DatasetError as error:
        raise Refused(errors(error.problems)[0]) from error
    except TaskError as error:
        raise Refused(error.problem) from error


def _rank_costs(
    job: Job, model: nn.Module, traces: Traces, *, shape: tuple[int, ...], group: int, progress: OnProgress
) -> list[CutPointCosts]:
    """The costs of each of the `group` ranks; a device that is at several is measured once.

    `shape` is a microbatch's.
    """
    distinct = list(dict.fromkeys(job.devices[:group]))
    costs: dict[str, CutPointCosts] = {}
    for number, name in enumerate(distinct):
        what = f"Measuring on GPU {number + 1} of {len(distinct)}" if is_gpu(name) else "Measuring on the CPU"

        def told(share: float, number: int = number, what: str = what) -> None:
            progress(BUILT + (1 - BUILT) * (number + share) / len(distinct), what)

        device = _torch_device(job, name)
        try:
            costs[name] = measure_rank(
                model,
                traces,
                torch.rand(shape, device=device),
                job=job,
                device=name,
                workers=job.devices.count(name),
                clock=partial(clock, device),
                autocast=partial(autocast, device, job.precision),
                progress=told,
            )
        except CannotCut:
            raise
        except Exception as error:
            # A user's own computation may fail in any way, and BatchNorm cannot learn from a single value.
            if not is_foreign(job) and not isinstance(error, ValueError):
                raise
            message = f"The model {job.model} fails on {_images(shape)}: {type(error).__name__}: {error}."
            remedy = "Use fewer microbatches, a larger batch size or larger images."
            raise Refused(
                Problem("model", message, f"Correct the file. {remedy}" if job.model_is_file else remedy)
            ) from error
    return [costs[name] for name in job.devices[:group]]


def _images(shape: tuple[int, ...]) -> str:
    return f"a microbatch of {counted(shape[0], 'image')} of {shape[-1]} px"


def _torch_device(job: Job, name: str) -> torch.device:
    gpus = list(dict.fromkeys(filter(is_gpu, job.devices)))
    return torch.device("cuda", gpus.index(name)) if is_gpu(name) else torch.device("cpu")


def _neighbours(job: Job, group: int) -> set[tuple[torch.device, torch.device]]:
    devices = [_torch_device(job, name) for name in job.devices[:group]]
    return set(itertools.pairwise(devices))


def _seconds_per_byte(one: torch.device, other: torch.device) -> float:
    """What a byte costs between two devices: CPU workers talk through gloo, GPUs copy."""
    if one.type == other.type == "cpu":
        return _through_gloo() / TRAVELLING_BYTES
    load = torch.zeros(TRAVELLING_BYTES, dtype=torch.uint8, device=one)
    seconds = []
    for _ in range(TRAVELS):
        begun = clock(one)
        load.to(other)
        clock(one)
        seconds.append(clock(other) - begun)
    return min(seconds) / TRAVELLING_BYTES


def _through_gloo() -> float:
    """Seconds for `TRAVELLING_BYTES` from one member of a gloo group to another, both in this process."""
    if sys.platform != "win32":
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    store = dist.HashStore()
    load, answer = torch.zeros(TRAVELLING_BYTES, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)

    def receive() -> None:
        group: Any = dist.ProcessGroupGloo(store, 1, 2, TRAVEL_TIMEOUT)
        received = torch.empty_like(load)
        for _ in range(TRAVELS):
            group.recv([received], 0, 0).wait()
            group.send([answer], 0, 0).wait()

    receiver = threading.Thread(target=receive, name="travelling")
    receiver.start()
    group: Any = dist.ProcessGroupGloo(store, 0, 2, TRAVEL_TIMEOUT)
    seconds = []
    for _ in range(TRAVELS):
        begun = time.perf_counter()
        group.send([load], 1, 0).wait()
        group.recv([answer], 1, 0).wait()
        seconds.append(time.perf_counter() - begun)
    receiver.join()
    return min(seconds)
