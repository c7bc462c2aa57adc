"""Estimates of a setup's memory per device and of its shortest step time, made from measured parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from engine.advisor.advice.trial_files import Activations, Footprint, LinkSpeed
from engine.contract.catalogue import StrategyEntry
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.parallel.layout import Layout, bubble_ratio, compute_layout
from engine.parallel.peak_microbatches import find_peaks_in_flight

OPTIMIZER_STATES = {
    "sgd": 0, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "lamb": 2
}  # fmt: skip
"""Number of values that each optimizer stores per parameter. Optional momentum is not included."""
ESTIMATE_MARGIN = 1.25
"""Maximum estimate for a setup that is tried, as a multiple of its device's memory. Estimates may be 20% off."""
MIN_SCALE, MAX_SCALE = 0.5, 2.5
MIN_ACTIVATIONS = 0.1
"""Minimum fraction of a worker's memory that activations must take to be scaled by a calibration."""
STAGE_IMBALANCE = 1.15
"""Assumed load of the fullest pipeline stage, relative to an even division of the model."""
GATHERED_BLOCKS = 3
"""Number of complete blocks that FSDP holds at once: the current one, its gradients, and the prefetched one."""
REPLICATED_ACTIVATIONS = 0.35
"""Fraction of a transformer's activations that every device stores under tensor parallelism.

It is 10 of 34 units, plus those of the head (Korthikanti et al. 2022, Reducing Activation Recomputation in Large
Transformer Models).
"""


class Calibration(NamedTuple):
    """Correction of memory estimates, found in a trial.

    The activations take `scale` times their estimate. All other memory together takes `extra_bytes` more than
    estimated.
    """

    scale: float = 1.0
    extra_bytes: float = 0.0


UNCALIBRATED = Calibration()


def estimate_bytes(job: Job, strategy: StrategyEntry, footprint: Footprint, calibration: Calibration) -> int | None:
    """Estimate the peak memory of a device or CPU worker in bytes.

    Return None if the model can't run with fake tensors.
    """
    activations = footprint.checkpointed_activations if job.parallel.activation_checkpointing else footprint.activations
    if activations is None:
        return None
    arrangement, count = compute_layout(job, strategy), len(job.parallel.devices)
    has_momentum = job.optimizer.name in ("sgd", "rmsprop") and job.optimizer.momentum > 0
    # Momentum is one more tensor for each trained parameter.
    state_bytes = footprint.trained_bytes * (OPTIMIZER_STATES[job.optimizer.name] + has_momentum)
    saved = calibration.scale * _estimate_activation_bytes(job, strategy, footprint, activations, arrangement)
    # The devices of a replica that divides the model all receive the images of the replica's batch.
    data_parallel_size = count if strategy.splits_batch and not strategy.splits_model else arrangement.replicas
    batch_bytes = footprint.image_bytes * job.training.batch_size / data_parallel_size
    # Batches of both splits are prefetched as uint8, a quarter of the size of the floats in `image_bytes`.
    loaded_bytes = 2 * (footprint.prefetched_batches + 1) * batch_bytes / 4
    # One batch is prepared, one is used, and one is being released, as float32.
    float_bytes = 3 * batch_bytes
    total = footprint.base_bytes + calibration.extra_bytes + saved + footprint.buffer_bytes + loaded_bytes + float_bytes
    total += _estimate_model_bytes(job, strategy, footprint, state_bytes, arrangement.group)
    if CPU in job.parallel.devices:  # the copy for a checkpoint is in the same memory
        total += footprint.parameter_bytes + state_bytes
        if strategy.shards_parameters or strategy.splits_layers:
            # malloc retains the memory of the full model before sharding, and of the state gathered for a checkpoint.
            total += 2 * footprint.parameter_bytes + state_bytes
    return round(total)


def _estimate_model_bytes(
    job: Job, strategy: StrategyEntry, footprint: Footprint, state_bytes: int, group: int
) -> float:
    """Estimate the memory of weights, gradients, optimizer state and EMA on one device, in bytes.

    `state_bytes` is the size of the complete optimizer state, and `group` the number of devices in a replica.
    """
    weights, gradients, count = footprint.parameter_bytes, footprint.trained_bytes, len(job.parallel.devices)
    state = state_bytes + (weights if job.training.ema_decay is not None else 0)
    total = float(weights + gradients + state)
    if strategy.splits_model:
        total *= STAGE_IMBALANCE / group
    elif strategy.splits_layers:  # tensor parallelism, which uses FSDP for the mesh's other dimension
        total = total / group + GATHERED_BLOCKS * footprint.block_bytes
    elif strategy.shards_optimizer:  # weights and gradients stay complete
        total = weights + gradients + state / count
    if strategy.shards_parameters:
        shards = count // job.parallel.replicas if strategy.has_replicas else count
        # Offloaded shards are in main memory.
        total = (0.0 if job.parallel.cpu_offload else total / shards) + GATHERED_BLOCKS * footprint.block_bytes
    return total


def _estimate_activation_bytes(
    job: Job, strategy: StrategyEntry, footprint: Footprint, activations: Activations, arrangement: Layout
) -> float:
    """Estimate the memory of the activations that one device stores for the backward pass, in bytes."""
    images, fraction = job.training.batch_size / job.training.accumulation, 1.0
    if strategy.splits_model:
        images, fraction = images / arrangement.replicas, STAGE_IMBALANCE / arrangement.group
    elif strategy.splits_layers:
        images /= arrangement.replicas if strategy.has_replicas else 1
        fraction = REPLICATED_ACTIVATIONS + (1 - REPLICATED_ACTIVATIONS) / arrangement.group
    elif strategy.splits_batch:
        images /= len(job.parallel.devices)
    is_changed_to_bf16 = job.precision.name == "bf16" and footprint.resolved_precision != "bf16"
    # On the CPU, copies made by oneDNN take the memory that bf16 saves (measured with ResNet-18 and ViT-Tiny).
    if is_changed_to_bf16 and CPU not in job.parallel.devices:
        fraction *= footprint.bf16_fraction
    images, microbatches, stage_ranks = math.ceil(images), arrangement.microbatches, arrangement.stage_ranks
    if microbatches is None or microbatches == 1:
        return fraction * (activations.fixed + images * (activations.per_image + activations.largest))
    peak = max(find_peaks_in_flight(job.parallel.pipeline_schedule, microbatches, stage_ranks))
    stages_per_device = max(1.0, len(stage_ranks) / (max(stage_ranks) + 1))
    per_image = peak / stages_per_device * activations.per_image + activations.largest
    return fraction * (activations.fixed + images / microbatches * per_image)


def calibrate(measured_bytes: int, job: Job, strategy: StrategyEntry, footprint: Footprint) -> Calibration:
    """Derive a calibration from the memory that a trial of `job` has used.

    The difference from the estimate is attributed to the activations as long as their scale stays between `MIN_SCALE`
    and `MAX_SCALE`, and the rest to other memory. If the activations are estimated to take less than the fraction
    `MIN_ACTIVATIONS` of the used memory, the full difference is attributed to other memory.
    """
    total = estimate_bytes(job, strategy, footprint, UNCALIBRATED)
    without_activations = estimate_bytes(job, strategy, footprint, Calibration(scale=0.0))
    if total is None or without_activations is None or total <= without_activations:
        return UNCALIBRATED
    activations = total - without_activations
    if activations < MIN_ACTIVATIONS * measured_bytes:
        return Calibration(1.0, measured_bytes - total)
    scale = min(MAX_SCALE, max(MIN_SCALE, (measured_bytes - without_activations) / activations))
    return Calibration(scale, measured_bytes - without_activations - scale * activations)


@dataclass(frozen=True)
class Costs:
    """Measured time of a step with the full batch on one device, speed of the link, and sizes of the parameters."""

    step_s: float
    """Median duration of a step in seconds."""
    min_s: float
    """Duration of the shortest measured step in seconds."""
    fixed_s: float
    """Part of the step's time that does not depend on the batch size, in seconds."""
    link: LinkSpeed | None
    parameter_bytes: int
    trained_bytes: int


def estimate_min_step_s(job: Job, strategy: StrategyEntry, costs: Costs) -> float:
    """Return a lower bound for the duration of a step in seconds.

    The bound is the duration of the computation or of the communication, whichever is longer. They are assumed to
    overlap completely.
    """
    count, arrangement = len(job.parallel.devices), compute_layout(job, strategy)
    if strategy.splits_model and not strategy.has_schedule:
        return costs.min_s  # devices compute one after another
    compute_s = costs.min_s / count * (1 + bubble_ratio(job, strategy))
    if count == 1 or costs.link is None or strategy.splits_model or strategy.splits_layers:
        return compute_s  # only the exchange of gradients and shards is predicted
    # A ring of n devices sends (n - 1) / n of the bytes: twice for an all-reduce, once to gather or scatter shards.
    ring_size, sent_bytes = count, 2 * costs.trained_bytes
    if strategy.shards_parameters:
        ring_size = arrangement.group if strategy.has_replicas else count
        sent_bytes = 2 * costs.parameter_bytes + costs.trained_bytes
    ring_fraction = (ring_size - 1) / ring_size
    # The measured rate counts each byte of an all-reduce once, although this multiple of it is sent.
    measured_fraction = 2 * (costs.link.ranks - 1) / costs.link.ranks
    sending_s = ring_fraction * sent_bytes / (measured_fraction * costs.link.bytes_per_second)
    return max(compute_s, costs.link.latency_s + sending_s)
