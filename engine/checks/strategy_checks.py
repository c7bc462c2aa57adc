"""Check if a strategy fits the job's devices, batch, model, stages and options."""

from __future__ import annotations

from collections.abc import Iterator

from engine.contract.catalogue import ANY_SIZE, ModelEntry, StrategyEntry, did_you_mean
from engine.contract.devices import is_gpu
from engine.contract.images import sides_of_epoch
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.layout import ZERO_BUBBLE, Layout, layout, supports_microbatches
from engine.system.format import counted


def strategy_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> list[Problem]:
    """Return the problems with `strategy` in this job. `model` is None if the model is not in the catalogue."""
    found = _number_of_devices(job, strategy)
    found += _replicas(job, strategy)
    found += _batch(job, strategy)
    if strategy.cuts_model and job.parallel.devices:
        arranged = layout(job, strategy)
        found += stage_problems(job, strategy, model, arranged)
        found += cut_problems(job, model, arranged)
    found += _options(job, strategy, model)
    if not any(problem.field in ("batch_size", "accumulation", "microbatches") for problem in found):
        found += batch_norm_problems(job, strategy, model)
    return found


def _number_of_devices(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return a problem if the strategy can't use this number of devices."""
    count = len(job.parallel.devices)
    if 0 < count < strategy.min_devices:
        on_cpu = "cpu" in strategy.device_kinds and not any(map(is_gpu, job.parallel.devices))
        workers = " (or set CPU workers higher)" if on_cpu else ""
        chosen = "is chosen" if count == 1 else "are chosen"
        return [
            Problem(
                "strategy",
                f"{strategy.title} needs at least {strategy.min_devices} devices; {count} {chosen}.",
                f"Check more devices{workers}, or choose Automatic.",
            )
        ]
    if strategy.max_devices is not None and count > strategy.max_devices:
        return [
            Problem(
                "strategy",
                f"{strategy.title} uses one device; {count} are chosen.",
                "Choose Automatic, or check one device.",
            )
        ]
    return []


def _replicas(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return a problem if the devices can't be divided into equal replicas with at least two devices each."""
    count = len(job.parallel.devices)
    if not strategy.replicates or count < strategy.min_devices:
        return []
    possible = [str(n) for n in range(2, count // 2 + 1) if count % n == 0]
    remedy = f"Set {' or '.join(possible)} replicas" if possible else "Check an even number of devices"
    if count % job.parallel.replicas:
        return [
            Problem(
                "replicas",
                f"{count} devices can't be divided among {job.parallel.replicas} equal replicas.",
                f"{remedy}, or use another number of devices.",
            )
        ]
    if count < 2 * job.parallel.replicas:
        return [
            Problem(
                "replicas",
                f"{job.parallel.replicas} replicas on {count} devices have {count // job.parallel.replicas} each, and {strategy.title} "
                f"divides each replica among at least 2.",
                f"{remedy}, or use {2 * job.parallel.replicas} devices or more.",
            )
        ]
    return []


def _batch(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return the problems with dividing a batch among devices, for gradient accumulation, and into microbatches."""
    count, groups = len(job.parallel.devices), "devices"
    if strategy.splits_layers and strategy.replicates:
        count, groups = job.parallel.replicas, "replicas"
    if strategy.splits_batch and not strategy.cuts_model and job.training.batch_size < count:
        return [
            Problem(
                "batch_size",
                f"A batch of {job.training.batch_size} can't be divided among {count} {groups}.",
                f"Set {count * job.training.accumulation} or more, or use fewer {groups}.",
            )
        ]
    if strategy.cuts_model:
        return batch_problems(job, strategy) if job.parallel.devices else []
    shares = count if strategy.splits_batch else 1
    if job.training.batch_size < shares * job.training.accumulation:
        among = f" among {shares} {groups} and then" if shares > 1 else ""
        return [
            Problem(
                "accumulation",
                f"A batch of {job.training.batch_size} can't be divided{among} into {job.training.accumulation} parts of at least one "
                f"image.",
                f"Set {job.training.batch_size // shares} or less, or a batch size of {shares * job.training.accumulation} or more.",
            )
        ]
    return []


def _options(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> Iterator[Problem]:
    """Yield the problems with the strategy's options, and with a model that the strategy can't divide."""
    on_gpus = any(map(is_gpu, job.parallel.devices))
    used = strategy.fields
    if job.parallel.activation_checkpointing and not strategy.cuts_model and model is not None and not model.blocks:
        yield Problem(
            "activation_checkpointing",
            f"{model.title} has no repeated blocks whose activations could be recomputed.",
            "Turn it off, or choose another model or a pipeline.",
        )
    if job.parallel.activation_checkpointing and strategy.schedules and job.parallel.pipeline_schedule in ZERO_BUBBLE:
        yield Problem(
            "activation_checkpointing",
            "A zero-bubble schedule splits the backward pass, and activation checkpointing would recompute "
            "every layer's activations for each part.",
            "Turn it off, or choose 1F1B as Pipeline schedule.",
        )
    if strategy.splits_layers and model is not None and not model.tensor_parallel:
        yield Problem(
            "strategy",
            f"{model.title} has no layers that {strategy.title} can divide: attention heads, or linear layers with "
            f"only an activation between them.",
            "Choose another strategy, or a ViT, Swin or ConvNeXt.",
        )
    if (strategy.shards or strategy.splits_layers) and model is not None and model.tied:
        yield Problem(
            "strategy",
            f"{model.title} has parameters that share their memory ({', '.join(model.tied[:3])}), which "
            f"{strategy.title} can't divide among devices.",
            "Choose DistributedDataParallel, or another model.",
        )
    if "sync_batchnorm" in used and job.parallel.sync_batchnorm:
        if job.parallel.devices and not on_gpus:
            yield Problem(
                "sync_batchnorm", "PyTorch's SyncBatchNorm runs on GPUs only.", "Turn it off, or choose GPUs."
            )
        if model is not None and not model.batch_norm:
            yield Problem(
                "sync_batchnorm",
                f"{model.title} has no BatchNorm, so SyncBatchNorm has no effect.",
                "Turn it off.",
                "warning",
            )
    if "static_graph" in used and job.parallel.static_graph and job.model_is_file:
        yield Problem(
            "static_graph",
            "Footplate can't verify that a custom model uses the same parameters in every step.",
            "Turn it off unless build_model's network always does.",
            "warning",
        )
    if "cpu_offload" in used and job.parallel.cpu_offload and job.parallel.devices and not on_gpus:
        yield Problem("cpu_offload", "On the CPU everything is in main memory already.", "Turn it off, or choose GPUs.")
    if "shard_precision" in used and job.parallel.shard_precision == "bf16" and job.precision.name == "fp16":
        yield Problem(
            "shard_precision",
            "Autocast to fp16 has no effect on shards computed in bf16.",
            "Set Precision to bf16 or fp32, or compute shards in fp32.",
        )


IMAGES_NEEDED = 2
"""Minimum number of images for BatchNorm if each image has a single value per channel."""


def batch_norm_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> list[Problem]:
    """Return the problems with batches that are so small that BatchNorm would reject them.

    The result is empty for a model that is not in the catalogue.
    """
    if model is None or not model.lone_batch_norm or job.model.freeze_batchnorm or not job.parallel.devices:
        return []
    size = min(sides_of_epoch(job, job.data.image_size or model.image_size, 1))
    if model.lone_batch_norm != ANY_SIZE and size > model.lone_batch_norm:
        return []
    parts = _parts(job, strategy)
    images_per_part = job.training.batch_size // parts
    # Other checks refuse parts without images.
    if not 1 <= images_per_part < IMAGES_NEEDED or _is_synchronized(job, strategy):
        return []
    why = "of any size" if model.lone_batch_norm == ANY_SIZE else f"of {size} px"
    places = (
        "at once"
        if parts == 1
        else f"at once on each of {len(job.parallel.devices)} devices"
        if len(job.parallel.devices) > 1
        else "in each part"
    )
    message = (
        f"BatchNorm in {model.title} gets a single value per channel from an image {why}, so it needs {IMAGES_NEEDED} images "
        f"{places}; a batch of {job.training.batch_size} gives it 1."
    )
    return [Problem("batch_size", message, _remedy(job, parts, model))]


def _parts(job: Job, strategy: StrategyEntry) -> int:
    """Return the number of parts of a batch that pass through the model separately.

    They do so one after another, or on different devices.
    """
    arranged = layout(job, strategy)
    if strategy.cuts_model:
        shares = arranged.replicas * (arranged.microbatches or 1)
    elif strategy.splits_layers:
        shares = arranged.replicas
    else:
        shares = len(job.parallel.devices) if strategy.splits_batch else 1
    return shares * job.training.accumulation


def _is_synchronized(job: Job, strategy: StrategyEntry) -> bool:
    """Return True if BatchNorm computes its statistics over the batches of all devices."""
    synchronized = job.parallel.sync_batchnorm and "sync_batchnorm" in strategy.fields and not job.model.freeze_epochs
    return synchronized and len(job.parallel.devices) > 1 and any(map(is_gpu, job.parallel.devices))


def _remedy(job: Job, parts: int, model: ModelEntry) -> str:
    remedies = [f"Set {IMAGES_NEEDED * parts} or more"]
    if job.training.accumulation > 1:
        remedies.append("set Gradient accumulation lower")
    if len(job.parallel.devices) > 1:
        remedies.append("use fewer devices")
    if model.lone_batch_norm != ANY_SIZE:
        remedies.append("set a larger image size")
    return f"{', '.join(remedies)}, or turn Freeze BatchNorm on."


_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved 1F1B",
    "zb1p": "ZB1P",
    "zbv": "ZBV",
}


def batch_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return the problems with dividing the batch under a strategy that splits the model into stages.

    Stages have static shapes, so all microbatches must have the same size.
    """
    replicas = job.parallel.replicas if strategy.replicates else 1
    parts = replicas * job.training.accumulation
    if job.training.batch_size % parts == 0:
        return _microbatches(job, layout(job, strategy)) if strategy.schedules else []
    below = job.training.batch_size // parts * parts
    near = f"{below} or {below + parts}" if below else str(parts)
    batch = f"{strategy.title} needs to divide a batch of {job.training.batch_size} into equal parts"
    if job.training.accumulation == 1:
        message = f"{batch}, which {replicas} replicas do not allow."
        return [Problem("batch_size", message, f"Set {near}.")]
    message = f"{batch}, which {job.training.accumulation} parts do not allow."
    if replicas > 1:
        message = f"{batch}, which {replicas} replicas with {job.training.accumulation} parts each do not allow."
    return [Problem("batch_size", message, f"Set {near}, or change Gradient accumulation.")]


def _microbatches(job: Job, arranged: Layout) -> list[Problem]:
    """Return a problem if the pipeline schedule can't use the number of microbatches.

    If the job sets none, return a problem if there is no valid number.
    """
    schedule, devices, count = job.parallel.pipeline_schedule, arranged.group, job.parallel.microbatches
    part = job.training.batch_size // (arranged.replicas * job.training.accumulation)
    subject = f"A batch of {part}"
    if part != job.training.batch_size:
        subject = f"A part of {part} images of the batch of {job.training.batch_size}"
    if count is None:
        if arranged.microbatches is not None:
            return []
        message = f"{subject} has no divisor of at least {devices}, which {_SCHEDULES[schedule]} needs."
        smallest = devices * (job.training.batch_size // part)
        return [Problem("batch_size", message, f"Set {smallest} or more, or choose GPipe.")]
    if part % count:
        message = f"{subject} can't be divided into {count} equal microbatches."
        remedy = f"Choose a divisor of {part}, or leave it empty."
    elif supports_microbatches(schedule, count, devices):
        return []
    elif schedule == "1f1b":
        message = f"1F1B needs at least as many microbatches as stages ({devices})."
        remedy = f"Set {devices} or more, choose GPipe, or leave it empty."
    else:
        rounds = f"{count // devices} equal rounds on {devices} devices"
        message = f"{_SCHEDULES[schedule]} can't divide {count} microbatches into {rounds}."
        remedy = f"Set a multiple of {devices}, choose GPipe, or leave it empty."
    return [Problem("microbatches", message, remedy)]


def stage_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None, arranged: Layout) -> list[Problem]:
    """Return the problems with cutting the model into stages.

    The split points of a model file are unknown here, so `model` is None and nothing is reported.
    """
    if model is None:
        return []
    if model.uncuttable:
        return [
            Problem(
                "strategy",
                f"{model.title} can't be cut into stages: {model.uncuttable}.",
                "Choose another model or strategy.",
            )
        ]
    max_stages = len(model.split_points) + 1
    if arranged.stages <= max_stages:
        return []
    points = f"{model.title} can be cut at {len(model.split_points)} points, into at most {max_stages} stages"
    chosen = f"{arranged.group} devices are chosen"
    if strategy.replicates:
        chosen = f"each replica has {arranged.group} devices"
    if arranged.stages == arranged.group:
        return [Problem("devices", f"{points}; {chosen}.", "Use fewer devices, or a larger model.")]
    each = arranged.stages // arranged.group
    field = "stages_per_device" if job.parallel.pipeline_schedule == "interleaved_1f1b" else "pipeline_schedule"
    remedy = "Choose another pipeline schedule"
    if field == "stages_per_device" and max_stages // arranged.group > 1:
        remedy = f"Set {max_stages // arranged.group} or less"
    return [
        Problem(
            field,
            f"{points}; {chosen}, and {_SCHEDULES[job.parallel.pipeline_schedule]} puts {each} stages on each, so "
            f"{arranged.stages}.",
            f"{remedy}, use fewer devices, or a larger model.",
        )
    ]


def cut_problems(job: Job, model: ModelEntry | None, arranged: Layout) -> Iterator[Problem]:
    """Yield the problems with the job's points at which a pipeline splits the model."""
    cuts = job.parallel.cuts
    if not cuts or (model is not None and model.uncuttable):
        return
    if len(cuts) != arranged.stages - 1:
        yield Problem(
            "cuts",
            f"{counted(len(cuts), 'cut')} would make {len(cuts) + 1} stages; {arranged.stages} are needed.",
            f"List {arranged.stages - 1} cut points, or leave it empty.",
        )
    twice = sorted({point for point in cuts if cuts.count(point) > 1})
    if twice:
        yield Problem("cuts", f"{', '.join(twice)} is listed more than once.", "List each cut point once.")
    if model is None:
        return
    order = {point: number for number, point in enumerate(model.split_points)}
    unknown = [point for point in dict.fromkeys(cuts) if point not in order]
    yield from (
        [
            Problem("cuts", f"{model.title} can't be cut at “{point}”.", did_you_mean(point, list(model.split_points)))
            for point in unknown
        ]
    )
    known = [point for point in dict.fromkeys(cuts) if point in order]
    inorder = sorted(known, key=order.__getitem__)
    if known != inorder:
        yield Problem("cuts", "The cuts are not in the model's order.", f"List them as {', '.join(inorder)}.")
