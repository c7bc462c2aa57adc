"""Shares of the batch in proportion to each rank's speed, for devices that are not alike."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from engine.contract.events import Warned
from engine.strategies.base import Strategy
from engine.strategies.recompute import BuffersAsBefore

if TYPE_CHECKING:
    from engine.tasks.base import Task

WARM_UP = 2
TIMED = 5
"""Steps; the median counts."""
EVEN = 0.05
"""Ranks whose speeds differ by less keep equal shares: measurements scatter as much."""
STRAGGLES = 1.1
"""A rank that takes so many times as long as the others is told of."""


def balance(strategy: Strategy, model: nn.Module, task: Task, example_shape: tuple[int, int, int]) -> None:
    """Sets the `shares` of `strategy` by how fast every data rank trains `model`, and its `remarks` on a straggler.

    To be called by all ranks in `wrap`, where the job asks for shares by speed, with the plain model on this
    rank's device and in training mode. Its weights, gradients, buffers and the random numbers stay as they are.
    """
    world = strategy.data_world
    strategy.agree((0,))  # all measure at once, since they may share a processor
    speeds = torch.zeros(world, dtype=torch.float64)
    speeds[strategy.data_rank] = pictures_per_second(strategy, model, task, example_shape)
    measured = strategy.total(speeds).tolist()
    if max(measured) <= min(measured) * (1 + EVEN):
        return
    strategy.shares = tuple(speed / sum(measured) for speed in measured)
    slowest = measured.index(min(measured))
    ratio = statistics.median(measured[:slowest] + measured[slowest + 1 :]) / measured[slowest]
    if ratio > STRAGGLES and strategy.spec.rank == 0:
        message = (
            f"Rank {slowest} on {_device(strategy, slowest)} takes {ratio:.1f} times as long as the others. "
            f"It is given {strategy.shares[slowest]:.0%} of every batch, so that nobody waits for it."
        )
        strategy.remarks.append(Warned(code="straggler", message=message, rank=slowest))


def pictures_per_second(strategy: Strategy, model: nn.Module, task: Task, example_shape: tuple[int, int, int]) -> float:
    """How many pictures this rank goes forward and backward with in a second, by parts of an equal share."""
    job, device = strategy.spec.job, strategy.device
    count = max(2, job.batch_size // (strategy.data_world * job.accumulation))
    inputs = torch.zeros(count, *example_shape, device=device)
    targets = torch.zeros(count, dtype=torch.int64, device=device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def compute() -> None:
        with strategy.autocast():
            outputs = model(inputs)
        losses: Tensor = task.loss(outputs.float(), targets)
        torch.autograd.grad(losses.mean(), parameters, allow_unused=True)

    seconds = []
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), BuffersAsBefore(model):
        for step in range(WARM_UP + TIMED):
            begun = strategy.clock()
            compute()
            if step >= WARM_UP:
                seconds.append(strategy.clock() - begun)
    return count / statistics.median(seconds)


def _device(strategy: Strategy, rank: int) -> str:
    if strategy.device.type == "cpu":
        return "the CPU"
    return f"GPU {rank} of the run ({torch.cuda.get_device_name(rank)})"
