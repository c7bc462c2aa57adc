"""Checks of a strategy: if it fits the job's devices, batch, model, stages and options."""

from __future__ import annotations

from collections.abc import Iterator

from engine.contract.catalogue import ANY_SIZE, ModelEntry, StrategyEntry, suggest_name
from engine.contract.devices import is_gpu
from engine.contract.images import sides_of_epoch
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.layout import SCHEDULE_TITLES, ZERO_BUBBLE, Layout, compute_layout, supports_microbatches
from engine.system.format import counted


def strategy_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> list[Problem]:
    """Return the problems with `strategy` in this job. `model` is None if the model is not in the catalogue."""
    found = _device_count_problems(job, strategy)
    found += _replica_problems(job, strategy)
    found += _batch_size_problems(job, strategy)
    if strategy.splits_model and job.parallel.devices:
        arrangement = compute_layout(job, strategy)
        found += _stage_problems(job, strategy, model, arrangement)
        found += _split_point_problems(job, model, arrangement)
    found += _setting_problems(job, strategy, model)
    has_divisible_batch = not any(problem.field in ("batch_size", "accumulation", "microbatches") for problem in found)
    if has_divisible_batch:  # otherwise, the number of images in each part is unknown
        found += _batch_norm_problems(job, strategy, model)
    return found


def _device_count_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return a problem if the strategy can't use this number of devices. Other checks report a job without devices."""
    count = len(job.parallel.devices)
    if 0 < count < strategy.min_devices:
        on_cpu = "cpu" in strategy.device_kinds and not any(map(is_gpu, job.parallel.devices))
        workers = " (or set CPU workers higher)" if on_cpu else ""
        chosen = "is chosen" if count == 1 else "are chosen"
        message = f"{strategy.title} needs at least {strategy.min_devices} devices; {count} {chosen}."
        return [Problem("strategy", message, f"Check more devices{workers}, or choose Automatic.")]
    if strategy.max_devices is not None and count > strategy.max_devices:
        message = f"{strategy.title} uses one device; {count} are chosen."
        return [Problem("strategy", message, "Choose Automatic, or check one device.")]
    return []


def _replica_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return a problem if the devices can't be divided into equal replicas with at least two devices each.

    Return [] if there are too few devices for the strategy, which `_device_count_problems` reports.
    """
    count, replicas = len(job.parallel.devices), job.parallel.replicas
    if not strategy.has_replicas or count < strategy.min_devices:
        return []
    possible = [str(number) for number in range(2, count // 2 + 1) if count % number == 0]
    remedy = f"Set {' or '.join(possible)} replicas" if possible else "Check an even number of devices"
    if count % replicas:
        message = f"{count} devices can't be divided among {replicas} equal replicas."
        return [Problem("replicas", message, f"{remedy}, or use another number of devices.")]
    if count < 2 * replicas:
        message = (
            f"{replicas} replicas on {count} devices have {count // replicas} each, and {strategy.title} divides each "
            "replica among at least 2."
        )
        return [Problem("replicas", message, f"{remedy}, or use {2 * replicas} devices or more.")]
    return []


def _batch_size_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return the problems with dividing a batch among devices, into accumulated parts, and into microbatches."""
    batch, accumulation = job.training.batch_size, job.training.accumulation
    if strategy.splits_model:
        return _stage_batch_problems(job, strategy) if job.parallel.devices else []
    count, groups = len(job.parallel.devices), "devices"
    if strategy.splits_layers and strategy.has_replicas:  # the devices of a replica compute slices for the same images
        count, groups = job.parallel.replicas, "replicas"
    if strategy.splits_batch and batch < count:
        message = f"A batch of {batch} can't be divided among {count} {groups}."
        return [Problem("batch_size", message, f"Set {count * accumulation} or more, or use fewer {groups}.")]
    slices = count if strategy.splits_batch else 1
    if batch < slices * accumulation:
        among = f" among {slices} {groups} and then" if slices > 1 else ""
        message = f"A batch of {batch} can't be divided{among} into {accumulation} parts of at least one image."
        remedy = f"Set {batch // slices} or less, or a batch size of {slices * accumulation} or more."
        return [Problem("accumulation", message, remedy)]
    return []


def _setting_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> Iterator[Problem]:
    """Yield the problems with the job's settings for the strategy, and with a model that the strategy can't divide.

    `model` is None if the model is not in the catalogue.
    """
    settings, used_fields = job.parallel, strategy.fields
    on_cpu = bool(settings.devices) and not any(map(is_gpu, settings.devices))
    if model is not None:
        yield from _model_problems(job, strategy, model)
    if settings.activation_checkpointing and strategy.has_schedule and settings.pipeline_schedule in ZERO_BUBBLE:
        message = (
            "A zero-bubble schedule splits the backward pass, and activation checkpointing would recompute "
            "every layer's activations for each part."
        )
        yield Problem("activation_checkpointing", message, "Turn it off, or choose 1F1B as Pipeline schedule.")
    if "sync_batchnorm" in used_fields and settings.sync_batchnorm and on_cpu:
        message = "PyTorch's SyncBatchNorm runs on GPUs only."
        yield Problem("sync_batchnorm", message, "Turn it off, or choose GPUs.")
    if "static_graph" in used_fields and settings.static_graph and job.model_is_file:
        message = "Footplate can't verify that a custom model uses the same parameters in every step."
        yield Problem("static_graph", message, "Turn it off unless build_model's network always does.", "warning")
    if "cpu_offload" in used_fields and settings.cpu_offload and on_cpu:
        yield Problem("cpu_offload", "On the CPU everything is in main memory already.", "Turn it off, or choose GPUs.")
    if "shard_precision" in used_fields and settings.shard_precision == "bf16" and job.precision.name == "fp16":
        message = "Autocast to fp16 has no effect on shards computed in bf16."
        yield Problem("shard_precision", message, "Set Precision to bf16 or fp32, or compute shards in fp32.")


def _model_problems(job: Job, strategy: StrategyEntry, model: ModelEntry) -> Iterator[Problem]:
    """Yield the problems with a model that the strategy can't divide, or that a setting of the strategy doesn't suit."""
    if job.parallel.activation_checkpointing and not strategy.splits_model and not model.blocks:
        message = f"{model.title} has no repeated blocks whose activations could be recomputed."
        remedy = "Turn it off, or choose another model or a pipeline."
        yield Problem("activation_checkpointing", message, remedy)
    if strategy.splits_layers and not model.tensor_parallel:
        message = (
            f"{model.title} has no layers that {strategy.title} can divide: attention heads, or linear layers with "
            "only an activation between them."
        )
        yield Problem("strategy", message, "Choose another strategy, or a ViT, Swin or ConvNeXt.")
    if (strategy.shards_parameters or strategy.splits_layers) and model.tied:
        message = (
            f"{model.title} has parameters that share their memory ({', '.join(model.tied[:3])}), which "
            f"{strategy.title} can't divide among devices."
        )
        yield Problem("strategy", message, "Choose DistributedDataParallel, or another model.")
    if "sync_batchnorm" in strategy.fields and job.parallel.sync_batchnorm and not model.batch_norm:
        message = f"{model.title} has no BatchNorm, so SyncBatchNorm has no effect."
        yield Problem("sync_batchnorm", message, "Turn it off.", "warning")


IMAGES_NEEDED = 2
"""Minimum number of images that BatchNorm needs in training if each image has a single value per channel."""


def _batch_norm_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> list[Problem]:
    """Return the problems with batches that are so small that BatchNorm would reject them.

    The result is empty for a model that is not in the catalogue.
    """
    if model is None or not model.lone_batch_norm or job.model.freeze_batchnorm or not job.parallel.devices:
        return []
    size = min(sides_of_epoch(job, job.data.image_size or model.image_size, 1))  # smallest in the first epoch
    # Larger images give each BatchNorm several values per channel, so that one image is enough.
    if model.lone_batch_norm != ANY_SIZE and size > model.lone_batch_norm:
        return []
    parts = _count_separate_parts(job, strategy)
    images_per_part = job.training.batch_size // parts
    # Other checks refuse parts without images.
    if not 1 <= images_per_part < IMAGES_NEEDED or _is_synchronized(job, strategy):
        return []
    of_size = "of any size" if model.lone_batch_norm == ANY_SIZE else f"of {size} px"
    if parts == 1:
        where = "at once"
    elif len(job.parallel.devices) > 1:
        where = f"at once on each of {len(job.parallel.devices)} devices"
    else:
        where = "in each part"
    message = (
        f"BatchNorm in {model.title} gets a single value per channel from an image {of_size}, so it needs "
        f"{IMAGES_NEEDED} images {where}; a batch of {job.training.batch_size} gives it 1."
    )
    return [Problem("batch_size", message, _batch_norm_remedy(job, parts, model))]


def _count_separate_parts(job: Job, strategy: StrategyEntry) -> int:
    """Return the number of parts of a batch that pass through the model separately.

    They do so one after another, or on different devices.
    """
    arrangement = compute_layout(job, strategy)
    if strategy.splits_model:
        slices = arrangement.replicas * (arrangement.microbatches or 1)
    elif strategy.splits_layers:
        slices = arrangement.replicas
    else:
        slices = len(job.parallel.devices) if strategy.splits_batch else 1
    return slices * job.training.accumulation


def _is_synchronized(job: Job, strategy: StrategyEntry) -> bool:
    """Return True if BatchNorm computes its statistics over the batches of all devices.

    This requires several GPUs, and a backbone that isn't frozen, since a frozen backbone computes no statistics.
    """
    is_on = job.parallel.sync_batchnorm and "sync_batchnorm" in strategy.fields and not job.model.freeze_epochs
    return is_on and len(job.parallel.devices) > 1 and any(map(is_gpu, job.parallel.devices))


def _batch_norm_remedy(job: Job, parts: int, model: ModelEntry) -> str:
    """Return a sentence with the ways to give BatchNorm enough images in each of the `parts` of a batch."""
    remedies = [f"Set {IMAGES_NEEDED * parts} or more"]
    if job.training.accumulation > 1:
        remedies.append("set Gradient accumulation lower")
    if len(job.parallel.devices) > 1:
        remedies.append("use fewer devices")
    if model.lone_batch_norm != ANY_SIZE:
        remedies.append("set a larger image size")
    return f"{', '.join(remedies)}, or turn Freeze BatchNorm on."


def _stage_batch_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return the problems with dividing the batch under a strategy that splits the model into stages.

    Stages have static shapes, so all microbatches must have the same size.
    """
    replicas = job.parallel.replicas if strategy.has_replicas else 1
    parts = replicas * job.training.accumulation
    if job.training.batch_size % parts == 0:
        return _microbatch_problems(job, compute_layout(job, strategy)) if strategy.has_schedule else []
    next_smaller = job.training.batch_size // parts * parts
    nearest = f"{next_smaller} or {next_smaller + parts}" if next_smaller else str(parts)
    need = f"{strategy.title} needs to divide a batch of {job.training.batch_size} into equal parts"
    if job.training.accumulation == 1:
        return [Problem("batch_size", f"{need}, which {replicas} replicas do not allow.", f"Set {nearest}.")]
    reason = f"{job.training.accumulation} parts"
    if replicas > 1:
        reason = f"{replicas} replicas with {job.training.accumulation} parts each"
    remedy = f"Set {nearest}, or change Gradient accumulation."
    return [Problem("batch_size", f"{need}, which {reason} do not allow.", remedy)]


def _microbatch_problems(job: Job, arrangement: Layout) -> list[Problem]:
    """Return a problem if the pipeline schedule can't use the job's number of microbatches.

    If the job leaves the number to Footplate, return a problem if no number is valid.
    """
    schedule, devices, count = job.parallel.pipeline_schedule, arrangement.group, job.parallel.microbatches
    part_count = arrangement.replicas * job.training.accumulation
    images = job.training.batch_size // part_count  # in one part
    subject = f"A batch of {images}"
    if part_count > 1:
        subject = f"A part of {images} images of the batch of {job.training.batch_size}"
    if count is None:
        if arrangement.microbatches is not None:  # an automatically chosen number
            return []
        message = f"{subject} has no divisor of at least {devices}, which {SCHEDULE_TITLES[schedule]} needs."
        smallest = devices * part_count  # one image in each of `devices` microbatches
        return [Problem("batch_size", message, f"Set {smallest} or more, or choose GPipe.")]
    if images % count:
        message = f"{subject} can't be divided into {count} equal microbatches."
        remedy = f"Choose a divisor of {images}, or leave it empty."
    elif supports_microbatches(schedule, count, devices):
        return []
    elif schedule == "1f1b":
        message = f"1F1B needs at least as many microbatches as stages ({devices})."
        remedy = f"Set {devices} or more, choose GPipe, or leave it empty."
    else:
        rounds = f"{count // devices} equal rounds on {devices} devices"
        message = f"{SCHEDULE_TITLES[schedule]} can't divide {count} microbatches into {rounds}."
        remedy = f"Set a multiple of {devices}, choose GPipe, or leave it empty."
    return [Problem("microbatches", message, remedy)]


def _stage_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None, arrangement: Layout) -> list[Problem]:
    """Return a problem if the model can't be split, or not into as many stages as the strategy needs.

    Nothing is reported if `model` is None, as for a model file, whose split points are unknown.
    """
    if model is None:
        return []
    if model.unsplittable_reason:
        message = f"{model.title} can't be split into stages: {model.unsplittable_reason}."
        return [Problem("strategy", message, "Choose another model or strategy.")]
    point_count = len(model.possible_split_points)
    max_stages = point_count + 1
    if arrangement.stages <= max_stages:
        return []
    limit = f"{model.title} can be split at {point_count} points, into at most {max_stages} stages"
    chosen = f"{arrangement.group} devices are chosen"
    if strategy.has_replicas:
        chosen = f"each replica has {arrangement.group} devices"
    if arrangement.stages == arrangement.group:  # one stage on each device, which no other schedule would change
        return [Problem("devices", f"{limit}; {chosen}.", "Use fewer devices, or a larger model.")]
    schedule, per_device = job.parallel.pipeline_schedule, arrangement.stages // arrangement.group
    max_per_device = max_stages // arrangement.group
    field, remedy = "pipeline_schedule", "Choose another pipeline schedule"
    if schedule == "interleaved_1f1b":
        field = "stages_per_device"
        if max_per_device > 1:  # a number of 1 is not allowed
            remedy = f"Set {max_per_device} or less"
    stages = f"{SCHEDULE_TITLES[schedule]} puts {per_device} stages on each, so {arrangement.stages}"
    return [Problem(field, f"{limit}; {chosen}, and {stages}.", f"{remedy}, use fewer devices, or a larger model.")]


def _split_point_problems(job: Job, model: ModelEntry | None, arrangement: Layout) -> Iterator[Problem]:
    """Yield the problems with the job's points at which a pipeline splits the model."""
    points, needed = job.parallel.split_points, arrangement.stages - 1
    is_unsplittable = model is not None and model.unsplittable_reason  # reported by `_stage_problems`
    if not points or is_unsplittable:
        return
    if len(points) != needed:
        message = f"{counted(len(points), 'split point')} would make {len(points) + 1} stages; {needed + 1} are needed."
        yield Problem("split_points", message, f"List {counted(needed, 'split point')}, or leave it empty.")
    twice = sorted({point for point in points if points.count(point) > 1})
    if twice:
        yield Problem("split_points", f"{', '.join(twice)} is listed more than once.", "List each split point once.")
    if model is None:
        return
    possible = model.possible_split_points
    distinct = list(dict.fromkeys(points))
    for point in distinct:
        if point not in possible:
            remedy = suggest_name(point, list(possible))
            yield Problem("split_points", f"{model.title} can't be split at “{point}”.", remedy)
    known = [point for point in distinct if point in possible]
    ordered = sorted(known, key=possible.index)
    if known != ordered:
        message = "The split points are not in the model's order."
        yield Problem("split_points", message, f"List them as {', '.join(ordered)}.")
