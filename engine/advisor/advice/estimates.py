"""What a way to train would take of each device's memory, and how fast it can be at best: from what is known of its
parts. Pure arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from engine.advisor.advice.measured import Activations, Footprint, Link
from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.parallel.layout import bubble, layout
from engine.parallel.peak_microbatches import in_flight

STATES = {"sgd": 0, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "lamb": 2}
"""How many numbers an optimizer keeps for each parameter, besides momentum where that is one of its own."""
ROOM = 1.25
"""An estimate must exceed a device's memory by this factor for a way to be left out untried: it may be 20 % off."""
LEAST_SCALE, MOST_SCALE = 0.5, 2.5
LEAST_PART = 0.1
"""Activations that take less than this share of a worker's memory do not tell their scale."""
IMBALANCE = 1.15
"""How much more than an even share the fullest stage of a pipeline holds."""
UNDIVIDED = 0.35
"""The share of a transformer's activations that tensor parallelism leaves on every device (Korthikanti et al. 2022,
Reducing Activation Recomputation in Large Transformer Models: 10 of 34 units, and the head's)."""


class Correction(NamedTuple):
    """What a trial says of estimates: the activations take `scale` times theirs, and anything else `extra_bytes`
    more.
    """

    scale: float = 1.0
    extra_bytes: float = 0.0


UNMEASURED = Correction()


def estimate(job: Job, strategy: StrategyEntry, known: Footprint, measured: Correction) -> int | None:
    """The most that a device holds, a worker on the CPU, in bytes; None where fake tensors could not tell. `measured`
    is what a trial on one device says of the estimates.
    """
    activations = known.checkpointed if job.activation_checkpointing else known.plain
    if activations is None:
        return None
    laid, count = layout(job, strategy), len(job.devices)
    states = STATES[job.optimizer] + (job.optimizer in ("sgd", "rmsprop") and job.momentum > 0)
    weights, trained = known.parameter_bytes, known.trained_bytes
    state = states * trained + (weights if job.ema_decay is not None else 0)
    held, images = float(weights + trained + state), job.batch_size / job.accumulation
    kept_fixed = 1.0
    # On the CPU, oneDNN's own copies take what bf16 saves (measured with ResNet-18 and ViT-Tiny).
    halved = known.halved if job.precision == "bf16" != known.settled_precision and CPU not in job.devices else 1.0
    shards = (count // job.replicas if strategy.replicates else count) if strategy.shards else 1
    if strategy.cuts_model:
        held *= IMBALANCE / laid.group
    elif strategy.splits_layers:
        held = held / laid.group + 3 * known.block_bytes
    elif strategy.shards_optimizer:
        held = weights + trained + state / count
    if strategy.shards:
        held = (0.0 if job.cpu_offload else held / shards) + 3 * known.block_bytes
    if strategy.splits_batch and not strategy.cuts_model and not strategy.splits_layers:
        images /= count
    elif strategy.cuts_model:
        images, kept_fixed = images / laid.replicas, IMBALANCE / laid.group
    elif strategy.splits_layers:
        images /= laid.replicas if strategy.replicates else 1
        kept_fixed = UNDIVIDED + (1 - UNDIVIDED) / laid.group
    kept = (
        halved
        * measured.scale
        * _kept(activations, math.ceil(images), laid.microbatches, job, laid.stage_ranks)
        * kept_fixed
    )
    share = job.batch_size / (count if strategy.splits_batch and not strategy.cuts_model else laid.replicas)
    # Batches wait as bytes, of both splits; one is made, one is trained on and one is let go, as numbers of four bytes.
    batches = known.image_bytes * share * (2 * (known.ahead + 1) / 4 + 3)
    total = known.base_bytes + measured.extra_bytes + held + kept + known.buffer_bytes + batches
    if CPU in job.devices:  # where a checkpoint's copy lies, too
        total += weights + states * trained
        if strategy.shards or strategy.splits_layers:
            # What malloc keeps: of the whole model, from which the parts were made, and of the state that is put together.
            total += 2 * weights + states * trained
    return round(total)


def _kept(
    activations: Activations, images: int, microbatches: int | None, job: Job, stage_ranks: tuple[int, ...]
) -> float:
    """What all layers together would keep."""
    if microbatches is None or microbatches == 1:
        return activations.fixed + images * (activations.per_image + activations.largest)
    each = images / microbatches
    most = max(in_flight(job.pipeline_schedule, microbatches, stage_ranks))
    per_device = max(1.0, len(stage_ranks) / (max(stage_ranks) + 1))
    return activations.fixed + each * (most / per_device * activations.per_image + activations.largest)


def correction(measured_bytes: int, job: Job, strategy: StrategyEntry, known: Footprint) -> Correction:
    """How a measurement of `job` compares with its estimate: as far as `LEAST_SCALE` to `MOST_SCALE` times the
    activations explain it by these, the rest by what any worker takes besides; all of it where the activations are
    too small a part to tell.
    """
    none, whole = (estimate(job, strategy, known, Correction(scale)) for scale in (0.0, 1.0))
    if none is None or whole is None or whole <= none:
        return UNMEASURED
    if whole - none < LEAST_PART * measured_bytes:
        return Correction(1.0, measured_bytes - whole)
    scale = min(MOST_SCALE, max(LEAST_SCALE, (measured_bytes - none) / (whole - none)))
    return Correction(scale, measured_bytes - none - scale * (whole - none))


@dataclass(frozen=True)
class Costs:
    """The measured parts of a step. `step_s` is a whole batch's on one device, `least_s` the shortest of them,
    `fixed_s` what of it does not depend on the batch.
    """

    step_s: float
    least_s: float
    fixed_s: float
    link: Link | None
    parameter_bytes: int
    trained_bytes: int


def at_best_s(job: Job, strategy: StrategyEntry, costs: Costs) -> float:
    """What a step takes at least: its compute without any loss but the bubble, or what has to be sent, whichever is
    longer, as if all of it went on at once.
    """
    count, laid = len(job.devices), layout(job, strategy)
    if strategy.cuts_model and not strategy.schedules:
        return costs.least_s  # one device after another
    compute = costs.least_s / count * (1 + bubble(job, strategy))
    if count == 1 or costs.link is None or strategy.cuts_model or strategy.splits_layers:
        return compute
    ring = (count - 1) / count
    sent = 2 * costs.trained_bytes
    if strategy.shards:
        shard = laid.group if strategy.replicates else count
        ring, sent = (shard - 1) / shard, 2 * costs.parameter_bytes + costs.trained_bytes
    # An all-reduce sends twice the share of the ring, which its measured rate holds already.
    measured_ring = 2 * (costs.link.ranks - 1) / costs.link.ranks
    return max(compute, costs.link.latency_s + ring * sent / (measured_ring * costs.link.bytes_per_second))
