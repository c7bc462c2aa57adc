"""Measurement of each rank's speed before the training, to divide batches in proportion to it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engine.contract.events import Warned
from engine.contract.job import Job
from engine.data.loading.sampler import divide
from engine.strategies.base import Strategy, autocast, clock, forward_precision, memory_format
from engine.strategies.recompute import BuffersAsBefore

if TYPE_CHECKING:
    from engine.tasks.base import Objective

WARM_UP = 2
TIMED = 5
"""Number of timed steps; the median counts."""
EVEN = 0.05
"""Relative difference of speeds up to which ranks get equal parts; measurements vary by as much."""
STRAGGLES = 1.1
"""Minimum ratio of a slow rank's time to that of the others for a report."""


def balance(strategy: Strategy, model: nn.Module, objective: Objective, example_shape: tuple[int, ...]) -> None:
    """Set the `shares` of `strategy` by the measured speed of every data rank, and a remark about a straggler.

    All ranks call it in `wrap`, if the job requests it, with the plain model on this rank's device and in training
    mode. Weights, gradients, buffers and random numbers are preserved. Shares of the resumed run take precedence.
    """
    if strategy.resolved.shares is not None:
        strategy.shares = strategy.resolved.shares
        return
    world = strategy.data_world
    strategy.collectives.all_reduce_max((0,))  # all measure at once, since they may share a processor
    speeds = torch.zeros(world, dtype=torch.float64)
    speeds[strategy.data_rank] = images_per_second(strategy, model, objective, example_shape)
    measured = strategy.collectives.all_reduce_sum(speeds).tolist()
    if max(measured) <= min(measured) * (1 + EVEN):
        return
    strategy.shares = tuple(speed / sum(measured) for speed in measured)
    slowest = measured.index(min(measured))
    ratio = statistics.median(measured[:slowest] + measured[slowest + 1 :]) / measured[slowest]
    if ratio <= STRAGGLES:
        return
    devices = strategy.collectives.gather_objects(_device(strategy))
    if devices is not None:
        message = (
            f"Rank {slowest} on {devices[slowest]} takes {ratio:.1f} times as long as the others. "
            f"It gets {100 * strategy.shares[slowest]:.0f} % of every batch, so that no rank waits for it."
        )
        strategy.remarks.append(Warned(code="straggler", message=message, rank=slowest))


class Rehearsal:
    """Forward and backward passes with blank images on this rank alone.

    There are as many images as one part of the rank's batch has with `job`. Inside the context, buffers are copies;
    weights, gradients and random numbers are preserved. `forward` is the function that is called, and `inputs` are the
    images, float32 [n, channels, height, width]. Both may be replaced between passes.
    """

    def __init__(
        self,
        strategy: Strategy,
        job: Job,
        model: nn.Module,
        objective: Objective,
        example_shape: tuple[int, ...],
    ) -> None:
        share = divide(job.training.batch_size, strategy.shares or (1.0,) * strategy.data_world)[strategy.data_rank]
        # As np.array_split makes the first part; two at least, since BatchNorm takes no statistics of a single value.
        self.images = max(2, math.ceil(share / (job.training.accumulation * (strategy.layout.microbatches or 1))))
        self.forward: Callable[..., Tensor] = model
        self.inputs = torch.zeros(self.images, *example_shape, device=strategy.device)
        self.inputs = self.inputs.to(memory_format=memory_format(job))
        self._targets = objective.blank_targets(self.inputs)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._precision = forward_precision(job, strategy.entry)
        self._model = model
        self._objective = objective
        self._contexts = ExitStack()

    def __enter__(self) -> Rehearsal:
        devices = [self.inputs.device] if self.inputs.device.type == "cuda" else []
        self._contexts.enter_context(torch.random.fork_rng(devices))
        self._contexts.enter_context(BuffersAsBefore(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()

    def seconds(self) -> float:
        """Run one forward and backward pass, and return its duration."""
        started = clock(self.inputs.device)
        with autocast(self.inputs.device, self._precision):
            outputs = self.forward(self.inputs, *self._objective.extra_inputs(self._targets))
        losses = self._objective.loss(outputs.float(), self._targets)
        torch.autograd.grad(losses.mean(), self._parameters, allow_unused=True)
        return clock(self.inputs.device) - started


def images_per_second(
    strategy: Strategy, model: nn.Module, objective: Objective, example_shape: tuple[int, ...]
) -> float:
    """Return this rank's speed in forward and backward passes for equal parts of a batch."""
    with Rehearsal(strategy, strategy.job, model, objective, example_shape) as rehearsal:
        seconds = [rehearsal.seconds() for _ in range(WARM_UP + TIMED)]
    return rehearsal.images / statistics.median(seconds[WARM_UP:])


def _device(strategy: Strategy) -> str:
    if strategy.device.type == "cpu":
        return "the CPU"
    return f"GPU {strategy.spec.rank} of the run ({torch.cuda.get_device_name(strategy.device)})"
