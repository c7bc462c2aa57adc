"""Checks of strategies that cut the model into stages."""

from __future__ import annotations

from collections.abc import Iterator

from engine.contract.catalogue import ModelEntry, StrategyEntry, did_you_mean
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.parallel.layout import Layout, fits, layout
from engine.system.format import counted

_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved_1f1b": "Interleaved 1F1B",
    "zb1p": "ZB1P",
    "zbv": "ZBV",
}


def batch_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """Return the problems of dividing the batch. Stages have static shapes, so all microbatches must have equal size."""
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
    schedule, devices = _SCHEDULES[job.parallel.pipeline_schedule], arranged.group
    part = job.training.batch_size // (arranged.replicas * job.training.accumulation)
    called = f"A batch of {part}"
    if part != job.training.batch_size:
        called = f"A part of {part} images of the batch of {job.training.batch_size}"
    if job.parallel.microbatches is None:
        if arranged.microbatches is not None:
            return []
        return [
            Problem(
                "batch_size",
                f"{called} has no divisor of at least {devices}, which {schedule} needs.",
                f"Set {devices * (job.training.batch_size // part)} or more, or choose GPipe.",
            )
        ]
    if part % job.parallel.microbatches:
        return [
            Problem(
                "microbatches",
                f"{called} can't be divided into {job.parallel.microbatches} equal microbatches.",
                f"Choose a divisor of {part}, or leave it empty.",
            )
        ]
    if fits(job.parallel.pipeline_schedule, job.parallel.microbatches, devices):
        return []
    if job.parallel.pipeline_schedule == "1f1b":
        return [
            Problem(
                "microbatches",
                f"1F1B needs at least as many microbatches as stages ({devices}).",
                f"Set {devices} or more, choose GPipe, or leave it empty.",
            )
        ]
    return [
        Problem(
            "microbatches",
            f"{schedule} can't divide {job.parallel.microbatches} microbatches into {job.parallel.microbatches // devices} equal rounds "
            f"on {devices} devices.",
            f"Set a multiple of {devices}, choose GPipe, or leave it empty.",
        )
    ]


def stage_problems(job: Job, strategy: StrategyEntry, model: ModelEntry | None, arranged: Layout) -> list[Problem]:
    """Return the problems of cutting the model into stages; the split points of a model file are unknown here."""
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
    """Return the problems of the cuts in the job."""
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
