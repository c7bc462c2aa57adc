"""Check that BatchNorm gets enough values for its statistics."""

from __future__ import annotations

from engine.contract.catalogue import ANY_SIZE, ModelEntry, StrategyEntry
from engine.contract.devices import is_gpu
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.layout import layout

IMAGES_NEEDED = 2
"""Images that a BatchNorm needs at once if it gets one value per channel of each."""


def batch_norm_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None) -> list[Problem]:
    """Return why BatchNorm would refuse the job's batches; nothing for a model that the catalogue doesn't know."""
    if model is None or not model.lone_batch_norm or job.model.freeze_batchnorm or not job.parallel.devices:
        return []
    size = min(job.data.image_size or model.image_size, job.data.progressive_from or model.image_size)
    parts = _parts(job, strategy)
    if model.lone_batch_norm != ANY_SIZE and size > model.lone_batch_norm:
        return []
    if (
        not job.training.batch_size / parts >= 1
        or job.training.batch_size // parts >= IMAGES_NEEDED
        or _is_synchronized(job, strategy)
    ):
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
    """Return the number of parts of a batch that go through the model one after another or on other devices."""
    arranged = layout(job, strategy)
    if strategy.cuts_model:
        shares = arranged.replicas * (arranged.microbatches or 1)
    elif strategy.splits_layers:
        shares = arranged.replicas
    else:
        shares = len(job.parallel.devices) if strategy.splits_batch else 1
    return shares * job.training.accumulation


def _is_synchronized(job: Job, strategy: StrategyEntry) -> bool:
    """Return True if the statistics are taken over all devices."""
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
