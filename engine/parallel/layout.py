"""Layout of a job's ranks as replicas and pipeline stages, and its microbatches. This module is pure arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

from engine.contract.catalogue import StrategyEntry
from engine.contract.job import Job

INTERLEAVED_STAGES = 2
"""Default number of stages per device under interleaved 1F1B."""
PER_ROUND = frozenset({"interleaved_1f1b", "zb1p"})
"""Schedules that proceed in equal rounds, each with at least one microbatch per device."""
ZERO_BUBBLE = frozenset({"zb1p", "zbv"})
"""Schedules that divide the backward pass into one for the inputs and one for the weights."""
SCHEDULE_TITLES = {
    "1f1b": "1F1B", "gpipe": "GPipe", "interleaved_1f1b": "Interleaved 1F1B", "zb1p": "ZB1P", "zbv": "ZBV"
}  # fmt: skip
"""Titles of the pipeline schedules, in the order in which the advisor tries them."""


class Layout(NamedTuple):
    """Layout of a job's ranks as replicas and pipeline stages.

    A replica has `group` ranks. The rank `replica * group + group_rank` has the index `group_rank` in its replica.
    `stage_ranks[s]` is the group rank of stage s. It is empty for strategies without stages. `microbatches` is None if
    the batch can't be divided into microbatches.
    """

    replicas: int
    group: int
    stage_ranks: tuple[int, ...]
    microbatches: int | None

    @property
    def stages(self) -> int:
        return len(self.stage_ranks)

    def stages_at(self, group_rank: int) -> tuple[int, ...]:
        """Return the indices of the stages on the rank with index `group_rank`, in the order of computation."""
        return tuple(stage for stage, holder in enumerate(self.stage_ranks) if holder == group_rank)


def compute_layout(job: Job, strategy: StrategyEntry) -> Layout:
    """Return the layout of `job` on its devices. The job must be valid."""
    replicas = job.parallel.replicas if strategy.has_replicas else 1
    group = max(1, len(job.parallel.devices) // replicas)
    if not strategy.splits_model:
        return Layout(replicas, group, stage_ranks=(), microbatches=None)
    if not strategy.has_schedule:
        return Layout(replicas, group, stage_ranks=tuple(range(group)), microbatches=1)
    ranks = stage_ranks(job.parallel.pipeline_schedule, group, job.parallel.stages_per_device)
    replica_batch = job.training.batch_size // (replicas * job.training.accumulation)
    return Layout(
        replicas,
        group,
        ranks,
        job.parallel.microbatches or choose_microbatches(replica_batch, group, job.parallel.pipeline_schedule),
    )


class ParallelDims(NamedTuple):
    """Size of each dimension of the mesh, or the coordinates of a rank in it.

    Ranks that differ in `replicate` or `shard` process different parts of every batch. Ranks that differ only in
    `pipeline` or `tensor` process the same part.
    """

    replicate: int = 1
    shard: int = 1
    pipeline: int = 1
    tensor: int = 1

    @classmethod
    def of(cls, strategy: StrategyEntry, layout: Layout) -> ParallelDims:
        """Return the sizes of the mesh for a job with this strategy and layout."""
        if not strategy.process_per_device:
            return cls()  # all sizes are 1
        if strategy.has_replicas:
            outer, inner = strategy.mesh
            return cls(**{outer: layout.replicas, inner: layout.group})
        return cls(**dict.fromkeys(strategy.mesh, layout.group))  # the mesh has one dimension, or none for one device

    def coordinate(self, rank: int) -> ParallelDims:
        """Return the coordinates of `rank` in a mesh of this size."""
        rank, tensor = divmod(rank, self.tensor)
        data_rank, pipeline = divmod(rank, self.pipeline)
        replicate, shard = divmod(data_rank, self.shard)
        return ParallelDims(replicate, shard, pipeline, tensor)


def stage_ranks(schedule: str, devices: int, per_device: int | None) -> tuple[int, ...]:
    """Return the rank, within a replica of the model, that computes each pipeline stage.

    Each of the `devices` has one stage, except under two schedules. Interleaved 1F1B assigns `per_device` stages to
    each device, round-robin (`INTERLEAVED_STAGES` if it is None). ZBV assigns two stages to each device, first in
    ascending and then in descending order of devices.
    """
    if schedule == "zbv":
        return (*range(devices), *reversed(range(devices)))
    rounds = (per_device or INTERLEAVED_STAGES) if schedule == "interleaved_1f1b" else 1
    return tuple(range(devices)) * rounds


def supports_microbatches(schedule: str, microbatches: int, devices: int) -> bool:
    """Return True if a schedule supports this number of microbatches, by the rules of torch.distributed.pipelining.

    1F1B has one stage per device, and needs at least one microbatch for each. The schedules in `PER_ROUND` run
    max(1, microbatches // devices) rounds, which must have equal numbers of microbatches.
    """
    if schedule == "1f1b":
        return microbatches >= devices
    if schedule in PER_ROUND:
        return microbatches % max(1, microbatches // devices) == 0
    return True


def choose_microbatches(batch_size: int, devices: int, schedule: str) -> int | None:
    """Choose the number of microbatches for a job that does not set it. Return None if no number is possible.

    It is the divisor of the batch size that the schedule supports and that is closest to four per device. For GPipe and
    1F1B, the idle fraction is (devices - 1) / (microbatches + devices - 1), after Huang et al. 2019.
    """
    small_divisors = [n for n in range(1, math.isqrt(batch_size) + 1) if batch_size % n == 0]
    divisors = [divisor for n in small_divisors for divisor in (n, batch_size // n)]
    supported = (divisor for divisor in divisors if supports_microbatches(schedule, divisor, devices))
    return min(supported, key=lambda n: (abs(n - 4 * devices), n), default=None)


def bubble_ratio(job: Job, strategy: StrategyEntry) -> float:
    """Return the theoretical ratio of idle time to computing time in a job's pipeline.

    With p devices and m microbatches, it is (p - 1) / m for GPipe and 1F1B (Huang et al. 2019). If stages are
    interleaved, it is divided by the number of stages per device (Narayanan et al. 2021). Zero-bubble schedules reach 0
    at best (Qi et al. 2023).
    """
    layout = compute_layout(job, strategy)
    if not strategy.has_schedule or not layout.microbatches or job.parallel.pipeline_schedule in ZERO_BUBBLE:
        return 0.0
    per_device = max(1, layout.stages // layout.group)
    return (layout.group - 1) / (layout.microbatches * per_device)
