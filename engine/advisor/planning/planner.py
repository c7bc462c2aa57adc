"""Measurement of the costs of each part of a job's model on its devices, one after another, in this process."""

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

import torch
import torch.distributed as dist
from torch import nn

from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.contract.problems import Problem, errors
from engine.data.datasets.images import DatasetError
from engine.models.base import TaskError
from engine.models.classification_models import MNIST_CNN
from engine.models.registry import is_external
from engine.parallel.layout import compute_layout
from engine.parallel.split_points import CannotSplit
from engine.processes.requests import RequestError
from engine.strategies import STRATEGIES
from engine.strategies.base import autocast, clock, resolve_precision, use_fast_kernels
from engine.strategies.distributed import LOOPBACK
from engine.strategies.pipelining.model_split import Traces, trace
from engine.strategies.pipelining.stage_costs import (
    TIMED_TRANSFERS,
    TRANSFER_BYTES,
    RankCosts,
    assemble_split,
    measure_rank,
)
from engine.system.format import counted
from engine.tasks.registry import TASKS

NO_DATASET = (1000, 3)
"""Numbers of classes and channels that are used if no dataset is chosen.

They are those of ImageNet. Only the last layer depends on the classes, and only the first one on the channels.
"""
NO_DIGITS = (10, 1)
"""Numbers of classes and channels that are used for `mnist_cnn` if no dataset is chosen."""
TRAVEL_TIMEOUT = timedelta(seconds=30)
BUILT = 0.2
"""Fraction of the progress bar that is filled when the model is built and traced."""

OnProgress = Callable[[float, str], object]


def plan(job: Job, threads: int, progress: OnProgress) -> ModelSplit:
    """Find the best split of the job's model into pipeline stages for the devices of its first replica.

    A worker on the CPU uses `threads` threads. Weights are initialized instead of loaded, since their values don't
    affect the costs. Raises RequestError if the model can't be built or can't be split.
    """
    entry = STRATEGIES[job.resolved_strategy].entry
    if not entry.splits_model:
        raise RequestError(
            Problem("strategy", f"{entry.title} does not split the model into stages.", "Choose a strategy that does.")
        )
    torch.set_num_threads(job.precision.cpu_threads or threads)
    job = job.with_fields(precision=resolve_precision(job))
    if any(map(is_gpu, job.parallel.devices)):
        use_fast_kernels()
    progress(0.0, "Building the model")
    model, channels = _build_model(job)
    arrangement = compute_layout(job, entry)
    try:
        traces = trace(model)
        parts = arrangement.replicas * job.training.accumulation * (arrangement.microbatches or 1)
        microbatch_size = max(1, job.training.batch_size // parts)
        side = TASKS[job.task].get_image_size(job)
        shape = (microbatch_size, channels, side, side)
        gathered = _measure_rank_costs(job, model, traces, shape=shape, group=arrangement.group, progress=progress)
        devices = [_get_torch_device(job, name) for name in job.parallel.devices[: arrangement.group]]
        neighbors = set(itertools.pairwise(devices))
        link_seconds_per_byte = max(
            (_measure_seconds_per_byte(sender, receiver) for sender, receiver in neighbors), default=0.0
        )
        return assemble_split(
            model, traces, job=job, layout=arrangement, gathered=gathered, link_seconds_per_byte=link_seconds_per_byte
        )
    except CannotSplit as reason:
        message = f"The model can't be split into stages: {reason}."
        raise RequestError(Problem(reason.field, message, reason.remedy)) from reason


def _build_model(job: Job) -> tuple[nn.Module, int]:
    """Return the job's model with new weights, and the number of channels of its images.

    Without a dataset, usual numbers of classes and channels are assumed. Raises RequestError.
    """
    classes, channels = NO_DIGITS if job.model.name == MNIST_CNN else NO_DATASET
    try:
        if job.data.dataset:
            splits = TASKS[job.task].open_splits(job)
            classes, channels = len(splits.classes), splits.channels
        fresh = job.with_fields(pretrained=False, weights_file="")
        return TASKS[job.task].build_model(fresh, classes, channels), channels
    except DatasetError as error:
        raise RequestError(*errors(error.problems)) from error
    except TaskError as error:
        raise RequestError(error.problem) from error


def _measure_rank_costs(
    job: Job, model: nn.Module, traces: Traces, *, shape: tuple[int, ...], group: int, progress: OnProgress
) -> list[RankCosts]:
    """Measure the costs of the model's parts on each of the `group` ranks of a replica, with microbatches of `shape`.

    `traces` describes the computation of `model`. If several ranks have the same device, it is measured once. Raises
    RequestError if the model fails on such a microbatch.
    """
    distinct = list(dict.fromkeys(job.parallel.devices[:group]))
    costs: dict[str, RankCosts] = {}

    def report_progress(index: int, fraction: float) -> None:
        """Report the progress after the given fraction of the measurements on the distinct device `index`."""
        activity = "Measuring on the CPU"
        if is_gpu(distinct[index]):
            activity = f"Measuring on GPU {index + 1} of {len(distinct)}"
        progress(BUILT + (1 - BUILT) * (index + fraction) / len(distinct), activity)

    for index, name in enumerate(distinct):
        device = _get_torch_device(job, name)
        try:
            costs[name] = measure_rank(
                model,
                traces,
                torch.rand(shape, device=device),
                job=job,
                device=name,
                workers=job.parallel.devices.count(name),
                clock=partial(clock, device),
                autocast=partial(autocast, device, job.precision.name),
                progress=partial(report_progress, index),
            )
        except CannotSplit:
            raise
        except Exception as error:
            # User-defined computations may fail in any way, and BatchNorm can't train on a single value.
            if not is_external(job) and not isinstance(error, ValueError):
                raise
            images = f"a microbatch of {counted(shape[0], 'image')} of {shape[-1]} px"
            message = f"The model {job.model.name} fails on {images}: {type(error).__name__}: {error}."
            remedy = "Use fewer microbatches, a larger batch size or larger images."
            if job.model_is_file:
                remedy = f"Correct the file. {remedy}"
            raise RequestError(Problem("model", message, remedy)) from error
    return [costs[name] for name in job.parallel.devices[:group]]


def _get_torch_device(job: Job, name: str) -> torch.device:
    """Return the torch device with this name, "cpu" or a UUID. CUDA numbers the job's GPUs in the job's order."""
    gpus = list(dict.fromkeys(filter(is_gpu, job.parallel.devices)))
    return torch.device("cuda", gpus.index(name)) if is_gpu(name) else torch.device("cpu")


def _measure_seconds_per_byte(sender: torch.device, receiver: torch.device) -> float:
    """Return the time to transfer a byte between two devices, in seconds.

    CPU workers use gloo, and GPUs copy directly.
    """
    if sender.type == receiver.type == "cpu":
        return _time_gloo_send() / TRANSFER_BYTES
    load = torch.zeros(TRANSFER_BYTES, dtype=torch.uint8, device=sender)
    seconds = []
    for _ in range(TIMED_TRANSFERS):
        started = clock(sender)  # `clock` waits for the device
        load.to(receiver)
        clock(sender)
        seconds.append(clock(receiver) - started)
    return min(seconds) / TRANSFER_BYTES


def _time_gloo_send() -> float:
    """Return the time to send `TRANSFER_BYTES` between two members of a gloo group in this process, in seconds.

    Except on Windows, this sets the environment variable GLOO_SOCKET_IFNAME to the loopback interface.
    """
    if sys.platform != "win32":
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    store = dist.HashStore()
    sender_rank, receiver_rank, tag = 0, 1, 0
    load, answer = torch.zeros(TRANSFER_BYTES, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)

    def receive() -> None:
        """Join the group as the second member, receive each transfer, and acknowledge it with a byte."""
        group: Any = dist.ProcessGroupGloo(store, receiver_rank, 2, TRAVEL_TIMEOUT)
        received = torch.empty_like(load)
        for _ in range(TIMED_TRANSFERS):
            group.recv([received], sender_rank, tag).wait()
            group.send([answer], sender_rank, tag).wait()

    receiver = threading.Thread(target=receive, name="traveling")
    receiver.start()
    group: Any = dist.ProcessGroupGloo(store, sender_rank, 2, TRAVEL_TIMEOUT)
    seconds = []
    for _ in range(TIMED_TRANSFERS):
        started = time.perf_counter()
        group.send([load], receiver_rank, tag).wait()
        group.recv([answer], receiver_rank, tag).wait()  # it shows that the load has arrived
        seconds.append(time.perf_counter() - started)
    receiver.join()
    return min(seconds)
