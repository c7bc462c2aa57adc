"""Estimates of a job's time and memory, based on past runs of the same model on the same kind of devices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from engine.contract.events import DevicesSampled, Planned, RunStarted, StepMetrics, Validation
from engine.contract.job import Job
from engine.runs.folder import ENDED, RunFolder, RunSummary

MAX_PAST_RUNS = 8
"""Maximum number of past runs of a model on which an estimate is based."""
_FORWARD_FRACTION = 1 / 3
"""Time of a forward pass as a fraction of a training step. The backward pass takes twice as long."""


class PastRun(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a past run for estimating the time and memory of new jobs.

    Attributes:
        device_kinds: Name of each device, without its number.
        image_size: Side length of the images in pixels.
        images_per_second: Median over the training, for all devices together.
        validated_per_second: Images per second in validations, or None if there were none.
        memory_bytes: Largest increase of a device's used memory during the run, or None if it was not measured.
    """

    run_id: str
    job: Job
    device_kinds: tuple[str, ...]
    image_size: int
    images_per_second: float
    validated_per_second: float | None = None
    memory_bytes: int | None = None


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated time and memory of a job.

    Attributes:
        seconds: Time of training and validation, or None if unknown.
        memory_bytes: Peak memory per device, or None if unknown.
        is_upper_bound: True if the memory comes from a run with a larger batch size, so that the job may need less.
        is_computed: True if the memory was computed from the model's layers instead of measured in a run.
        run_id: Past run on which the time is based, or "" without a time.
        is_scaled: True if that run had another number of devices or another image size.
    """

    seconds: float | None
    memory_bytes: int | None = None
    is_upper_bound: bool = False
    is_computed: bool = False
    run_id: str = ""
    is_scaled: bool = False


def read_past_run(run: RunFolder) -> PastRun | None:
    """Read the measurements of a run. Return None if it has not trained."""
    started: RunStarted | None = None
    planned: Planned | None = None
    speeds: list[float] = []
    validated_images, validation_s = 0, 0.0
    used: dict[str, list[int]] = {}  # used memory in bytes in each sample, by device
    for event in run.events():
        if isinstance(event, RunStarted):
            # Start over, because a later execution may have other devices.
            started, speeds, used = event, [], {}
            validated_images, validation_s = 0, 0.0
        elif isinstance(event, Planned):
            planned = event
        elif isinstance(event, StepMetrics):
            speeds.append(event.images_per_second)
        elif isinstance(event, Validation):
            validated_images, validation_s = validated_images + event.images, validation_s + event.seconds
        elif isinstance(event, DevicesSampled):
            for sample in event.samples:
                if sample.memory_used_bytes is not None:
                    used.setdefault(sample.device, []).append(sample.memory_used_bytes)
    if started is None or planned is None or not speeds or statistics.median(speeds) <= 0:
        return None  # without a speed, it can't be scaled to another job
    names = {device.id: kind_of(device.name) for device in started.devices}
    return PastRun(
        run_id=run.run_id,
        job=started.job,
        device_kinds=tuple(names.get(device, device) for device in started.job.parallel.devices),
        image_size=planned.image_size,
        images_per_second=statistics.median(speeds),
        validated_per_second=validated_images / validation_s if validation_s > 0 else None,
        # The smallest sample counts as memory that was in use before the run.
        memory_bytes=max((max(values) - min(values) for values in used.values()), default=None),
    )


def kind_of(name: str) -> str:
    """Return a device's name without the number that logs add to it: "RTX 6000" for "RTX 6000 (GPU 1)"."""
    return name.partition(" (GPU ")[0]


def read_past_runs(job: Job, runs: Iterable[RunSummary], cache: dict[str, PastRun | None]) -> list[PastRun]:
    """Read the newest past runs of the job's model, at most `MAX_PAST_RUNS`, and add them to `cache`.

    `runs` are sorted from newest to oldest. `cache` has past runs by id, with None for runs that have not trained.
    """
    past_runs: list[PastRun] = []
    for summary in runs:
        if summary.model != job.model.name:
            continue
        if summary.run_id not in cache or summary.state not in ENDED:  # an active run still gets new measurements
            cache[summary.run_id] = None
            with suppress(OSError):
                cache[summary.run_id] = read_past_run(RunFolder(summary.folder))
        past_run = cache[summary.run_id]
        if past_run is not None:
            past_runs.append(past_run)
        if len(past_runs) == MAX_PAST_RUNS:
            break
    return past_runs


def estimate(
    job: Job, image_size: int, device_kinds: Sequence[str], images: tuple[int, int], past: Iterable[PastRun]
) -> Estimate | None:
    """Estimate the time and memory of a job, or return None if its model has never run on the same kind of devices.

    The speed is assumed to be proportional to the number of devices and inversely proportional to the number of pixels.

    Args:
        job: The job.
        image_size: Side length of its images in pixels.
        device_kinds: Name of each of its devices, without its number.
        images: Numbers of training and validation images.
        past: Runs of the same model, newest first.
    """
    alike = [each for each in past if _is_alike(each, job, device_kinds)]
    if not alike:
        return None
    base = max(alike, key=lambda each: _compare_speed_factors(each, job, image_size))  # the first of equally close runs
    speed_ratio = len(device_kinds) / len(base.device_kinds) * (base.image_size / image_size) ** 2
    validated_per_second = base.validated_per_second or base.images_per_second / _FORWARD_FRACTION
    training_images, validation_images = images
    base_epoch_s = training_images / base.images_per_second + validation_images / validated_per_second
    memory, is_upper_bound = _estimate_memory(job, image_size, alike)
    return Estimate(
        seconds=job.training.epochs * base_epoch_s / speed_ratio,
        memory_bytes=memory,
        is_upper_bound=is_upper_bound,
        run_id=base.run_id,
        is_scaled=speed_ratio != 1,
    )


def estimate_remaining_s(run: RunFolder, now: float | None = None) -> float | None:
    """Estimate the remaining seconds of a training run from its past speed. Return None if they can't be estimated.

    `now` is in seconds since the epoch, by default the current time.
    """
    planned, step = run.read_plan(), run.summary().step
    if planned is None or step is None or step <= planned.from_step:
        return None
    elapsed_s = (time.time() if now is None else now) - planned.time
    steps = planned.epochs * planned.steps_per_epoch
    return max(0.0, elapsed_s * (steps - step) / (step - planned.from_step))


def _is_alike(past: PastRun, job: Job, device_kinds: Sequence[str]) -> bool:
    """Return True if a past run has trained the model of `job`, on devices of the same kinds as `device_kinds`."""
    past_model, model = past.job.model, job.model
    is_same_task = past.job.task == job.task
    is_same_model = is_same_task and (past_model.name, past_model.encoder) == (model.name, model.encoder)
    return is_same_model and set(past.device_kinds) == set(device_kinds)


def _compare_speed_factors(past: PastRun, job: Job, image_size: int) -> tuple[bool, ...]:
    """Return, for each factor that affects the speed, True if the past run and `job` have the same value.

    The most important factor comes first.
    """
    past_job = past.job
    return (
        past.image_size == image_size,
        len(past.device_kinds) == len(job.parallel.devices),
        past_job.resolved_strategy == job.resolved_strategy,
        past_job.precision.name == job.precision.name,
        past_job.training.batch_size == job.training.batch_size,
    )


def _estimate_memory(job: Job, image_size: int, alike: Sequence[PastRun]) -> tuple[int | None, bool]:
    """Estimate the memory per device from the runs `alike`.

    Returns the memory, or None if it is unknown, and True if it is an upper bound. Only runs with the same image size,
    precision, strategy and optimizer are used. Since a part of the memory does not depend on the batch size, memory
    grows at most in proportion to it.
    """
    comparable = {  # memory by batch size per device; the newest run counts, since it comes last
        _compute_batch_per_device(each.job): each.memory_bytes
        for each in reversed(alike)
        if each.memory_bytes is not None
        and each.image_size == image_size
        and _get_memory_fields(each.job) == _get_memory_fields(job)
    }
    batch = _compute_batch_per_device(job)
    if batch in comparable:
        return comparable[batch], False
    if not comparable:
        return None, False
    nearest = min(comparable, key=lambda size: abs(size - batch))
    return round(comparable[nearest] * max(1.0, batch / nearest)), True


def _compute_batch_per_device(job: Job) -> float:
    """Return the number of images that a device processes at a time."""
    return job.training.batch_size / job.training.accumulation / len(job.parallel.devices)


def _get_memory_fields(job: Job) -> tuple[object, ...]:
    """Return the fields that must be equal for two runs to need the same memory per image, apart from the image size.

    The callers compare runs with the same model only.
    """
    parallel = job.parallel
    return (
        job.resolved_strategy,
        job.precision.name,
        job.optimizer.name,
        parallel.activation_checkpointing,
        parallel.cpu_offload,
        job.training.ema_decay is None,
    )
