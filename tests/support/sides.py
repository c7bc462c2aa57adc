"""Baselines for Footplate's speed: training steps alone, and training loops of other tools.

Each program in a comparison ("side") is a function that takes a `Setting` and trains until its `Meter` has counted
enough steps. `run_in_process` runs it in a new process, which is forked from one that has imported torch, like
Footplate's workers.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.data.transforms.device_transforms import Normalization
from engine.system import linux
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS


@dataclass(frozen=True)
class Setting:
    """Configuration that all programs of a comparison share.

    `model` trains on images of [channels, size, size], `images` per epoch, and is measured for `seconds`. `threads`,
    `memory_format`, `precision` and `compiled` have the values that Footplate chose. On the CPU, only `time_bare_steps`
    uses these values.
    """

    data: str
    model: str
    size: int
    batch: int
    classes: int
    images: int
    seconds: float
    channels: int = 3
    device: str = "cpu"
    precision: str = "fp32"
    memory_format: str = "contiguous"
    threads: int = 1
    compiled: str = ""
    """Mode of torch.compile, or "" to not compile the model."""
    job: Job | None = None
    """Job for a task other than classification.

    `time_bare_steps` then trains on the first batch of the job's dataset.
    """


@dataclass(frozen=True)
class Rates:
    """Training speed in images per second: in the first epoch of a new process, and in later epochs.

    `window` holds the start and the end of the measurement in later epochs, as times from `time.monotonic`.
    """

    first: float
    later: float
    window: tuple[float, float]


class Meter:
    """Meter of the training speed in the first epoch and in later epochs.

    The first measurement ends with the first epoch, or after `setting.seconds`. The second measurement takes
    `setting.seconds`. After that, `enough` is True.
    """

    def __init__(self, setting: Setting) -> None:
        self.enough = False
        self._seconds = setting.seconds
        self._device = torch.device(setting.device)
        self._first: float | None = None
        self._later = 0.0
        self._window = (0.0, 0.0)
        self._images = 0
        self._start = self._now()

    def tick(self, images: int) -> None:
        """Count a step on `images` images, and end a measurement whose time is over."""
        self._images += images
        if time.monotonic() - self._start >= self._seconds:
            self._lap()

    def epoch_ended(self) -> None:
        if self._first is None:
            self._lap()

    def rates(self) -> Rates:
        assert self._first is not None
        return Rates(self._first, self._later, self._window)

    def _lap(self) -> None:
        now = self._now()
        rate = self._images / (now - self._start)
        if self._first is None:
            self._first = rate
        else:
            self._later, self._window, self.enough = rate, (self._start, now), True
        self._images, self._start = 0, now

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.monotonic()


def time_bare_steps(setting: Setting) -> Rates:
    """Measure the speed of training steps alone, on a batch that is already on the device.

    As in Footplate, an incomplete last batch is skipped.
    """
    torch.set_num_threads(setting.threads)
    if setting.device == "cpu":
        linux.keep_freed_memory()
    else:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if setting.memory_format == "channels_last" else torch.contiguous_format
    if setting.job is not None:
        return _time_task_steps(setting, setting.job, layout)
    plain = create_model(setting).to(setting.device).to(memory_format=layout)
    model: Any = torch.compile(plain, mode=setting.compiled) if setting.compiled else plain
    optimizer = torch.optim.SGD(plain.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    shape = (setting.batch, setting.channels, setting.size, setting.size)
    inputs = torch.randn(shape, device=setting.device).to(memory_format=layout)
    targets = torch.randint(0, setting.classes, (setting.batch,), device=setting.device)

    def loss(size: int) -> Tensor:
        with create_autocast(setting):
            outputs = model(inputs[:size])
        return functional.cross_entropy(outputs.float(), targets[:size])

    return _time_epochs(setting, optimizer, loss)


def _time_epochs(setting: Setting, optimizer: torch.optim.Optimizer, loss: Callable[[int], Tensor]) -> Rates:
    """Train epochs until the speed is measured, and return it. `loss` takes the number of images in a batch."""
    full_batches, rest = divmod(setting.images, setting.batch)
    sizes = [setting.batch] * full_batches or [rest]
    meter = Meter(setting)
    while not meter.enough:
        for size in sizes:
            optimizer.zero_grad()
            loss(size).backward()
            optimizer.step()
            meter.tick(size)
            if meter.enough:
                break
        meter.epoch_ended()
    return meter.rates()


def _time_task_steps(setting: Setting, job: Job, layout: torch.memory_format) -> Rates:
    """Measure the speed of training steps alone with the loss of the job's task, on the first batch of its data."""
    task = TASKS[job.task]
    formats = task.entry.annotations
    splits = task.prepare_splits(
        job, open_splits(job.data.dataset, val_fraction=job.data.val_fraction, seed=job.training.seed, kinds=formats)
    )
    objective = task.create_objective(job, DatasetInfo(splits.classes, splits.channels))
    size = task.get_image_size(job)
    loaded = [splits.train.load(index, size, splits.channels) for index in range(setting.batch)]
    pixels = torch.stack(loaded).to(setting.device)
    mean, std = (torch.tensor(values) for values in task.get_normalization(job, splits.channels))
    inputs = Normalization(mean, std, torch.device(setting.device))(pixels[:, : splits.channels], layout)
    planes = pixels[:, splits.channels :] if splits.train.planes else None
    rows = splits.train.targets_of(np.arange(setting.batch)).to(setting.device)
    targets = splits.train.batch_targets(rows, planes, None, size)
    torch.manual_seed(0)
    model = task.build_model(job, len(splits.classes), splits.channels).train()
    model = model.to(setting.device).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)

    def loss(size: int) -> Tensor:
        with create_autocast(setting):
            outputs = model(inputs[:size], *objective.get_extra_inputs(targets[:size]))
        return objective.loss(outputs.float(), targets[:size]).mean()

    return _time_epochs(setting, optimizer, loss)


def create_model(setting: Setting) -> nn.Module:
    torch.manual_seed(0)
    job = Job.from_fields(model=setting.model, image_size=setting.size)
    return TASKS[job.task].build_model(job, setting.classes, setting.channels).train()


def create_autocast(setting: Setting) -> torch.autocast:
    return torch.autocast(setting.device, torch.bfloat16, enabled=setting.precision == "bf16")


def time_steps(setting: Setting, batches: Any, step: Callable[[Tensor, Tensor], object]) -> Rates:
    """Measure the speed of calling `step` with each pair (inputs, targets) in `batches`, epoch after epoch."""
    meter = Meter(setting)
    while not meter.enough:
        for inputs, targets in batches:
            step(inputs, targets)
            meter.tick(len(targets))
            if meter.enough:
                break
        meter.epoch_ended()
    return meter.rates()


def run_in_process(side: Callable[..., Any], *arguments: Any) -> Any:
    """Call `side` with `arguments` in a separate process, and return its result. Raise SystemExit if it fails."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torchvision"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_give, args=(sender, side, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        raise SystemExit(1) from None
    finally:
        process.join()


def _give(sender: Connection, side: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(side(*arguments))
