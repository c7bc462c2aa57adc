"""Measurement of the ranks' training speeds before the training, so that faster ranks get more images."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engine.contract.events import Warned
from engine.contract.job import Job
from engine.data.loading.sampler import divide
from engine.strategies.base import Strategy, autocast, clock, forward_precision, memory_format
from engine.strategies.recompute import BufferSnapshot

if TYPE_CHECKING:
    from engine.tasks.base import Objective

WARM_UP = 2
TIMED_STEPS = 5
"""Number of steps that are timed to measure a rank's speed. Their median counts."""
MAX_SPEED_DIFFERENCE = 0.05
"""Maximum relative difference between the ranks' speeds that is ignored. All ranks then get the same number of images.

Measurements vary by that much.
"""
STRAGGLER_RATIO = 1.1
"""Minimum ratio of the slowest rank's time to the median time of the other ranks for a warning."""


def balance(strategy: Strategy, model: nn.Module, objective: Objective, example_shape: tuple[int, ...]) -> None:
    """Measure the speed of every data rank, and set `strategy.shares` in proportion to it. Warn about a straggler.

    All ranks call it in `wrap` if the job requests balancing. They pass the plain model in training mode on this rank's
    device, and the shape of one sample. Weights, gradients, buffers and random states stay the same. If a resumed run
    has saved shares, they are used instead. If the run is stopped meanwhile, no shares are set, so that a resumed run
    measures again.
    """
    if strategy.resolved_job.shares is not None:
        strategy.shares = strategy.resolved_job.shares
        return
    world = strategy.data_world
    strategy.collectives.all_reduce_max((0,))  # a barrier: start together, since ranks may share a processor
    speeds = torch.zeros(world, dtype=torch.float64)
    speeds[strategy.data_rank] = measure_images_per_second(strategy, model, objective, example_shape)
    measured = strategy.collectives.all_reduce_sum(speeds).tolist()
    if not all(measured):  # a rank has stopped
        return
    is_even = max(measured) <= min(measured) * (1 + MAX_SPEED_DIFFERENCE)
    strategy.shares = () if is_even else tuple(speed / sum(measured) for speed in measured)
    strategy.resolved_job = replace(strategy.resolved_job, shares=strategy.shares)
    if is_even:
        return
    slowest = measured.index(min(measured))
    others = measured[:slowest] + measured[slowest + 1 :]
    ratio = statistics.median(others) / measured[slowest]
    if ratio <= STRAGGLER_RATIO:
        return
    devices = strategy.collectives.gather_objects(_get_device_name(strategy))
    if devices is not None:
        message = (
            f"Rank {slowest} on {devices[slowest]} takes {ratio:.1f} times as long as the others. "
            f"It gets {100 * strategy.shares[slowest]:.0f}% of every batch, so that no rank waits for it."
        )
        strategy.remarks.append(Warned(code="straggler", message=message, rank=slowest))


class Rehearsal:
    """Context manager for timing forward and backward passes with blank images on this rank alone.

    A pass has as many images as a microbatch of this rank under `job`. Inside the context, passes change neither
    weights, gradients, buffers nor random states. `forward` (the function to call) and `inputs` (float32 [n, channels,
    height, width]) may be replaced between passes.
    """

    def __init__(
        self,
        strategy: Strategy,
        job: Job,
        model: nn.Module,
        objective: Objective,
        example_shape: tuple[int, ...],
    ) -> None:
        equal_shares = (1.0,) * strategy.data_world
        rank_images = divide(job.training.batch_size, strategy.shares or equal_shares)[strategy.data_rank]
        parts = job.training.accumulation * (strategy.layout.microbatches or 1)
        # Size of the first part of np.array_split, but at least 2: BatchNorm needs several values for statistics.
        self.images = max(2, math.ceil(rank_images / parts))
        self.forward: Callable[..., Tensor] = model
        self.inputs = torch.zeros(self.images, *example_shape, device=strategy.device)
        self.inputs = self.inputs.to(memory_format=memory_format(job))
        self._targets = objective.create_blank_targets(self.inputs)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._precision = forward_precision(job, strategy.entry)
        self._model = model
        self._objective = objective
        self._contexts = ExitStack()  # restores random states and buffers at the end

    def __enter__(self) -> Rehearsal:
        devices = [self.inputs.device] if self.inputs.device.type == "cuda" else []
        self._contexts.enter_context(torch.random.fork_rng(devices))
        self._contexts.enter_context(BufferSnapshot(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()

    def time_pass(self) -> float:
        """Run one forward and backward pass, and return its duration in seconds."""
        started = clock(self.inputs.device)
        with autocast(self.inputs.device, self._precision):
            outputs = self.forward(self.inputs, *self._objective.get_extra_inputs(self._targets))
        losses = self._objective.loss(outputs.float(), self._targets)
        torch.autograd.grad(losses.mean(), self._parameters, allow_unused=True)
        return clock(self.inputs.device) - started


def measure_images_per_second(
    strategy: Strategy, model: nn.Module, objective: Objective, example_shape: tuple[int, ...]
) -> float:
    """Measure the training speed of this rank if all ranks get equal parts of a batch.

    `example_shape` is the shape of one sample. Returns 0 if the run is stopped meanwhile.
    """
    seconds: list[float] = []
    with Rehearsal(strategy, strategy.job, model, objective, example_shape) as rehearsal:
        while len(seconds) < WARM_UP + TIMED_STEPS:
            if strategy.is_stopped():
                return 0.0
            seconds.append(rehearsal.time_pass())
    return rehearsal.images / statistics.median(seconds[WARM_UP:])


def _get_device_name(strategy: Strategy) -> str:
    """Return the name of this rank's device for a message to the user."""
    if strategy.device.type == "cpu":
        return "the CPU"
    return f"GPU {strategy.spec.rank} of the run ({torch.cuda.get_device_name(strategy.device)})"
