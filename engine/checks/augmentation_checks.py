"""Whether a job's augmentation can be had for its task."""

from __future__ import annotations

from engine.contract.augmentation import augmentation_kind, parse
from engine.contract.job import Job
from engine.contract.problems import Problem


def augmentation_problems(job: Job) -> list[Problem]:
    """What is wrong with the fields of the augmentation."""
    kind = augmentation_kind(job.task)
    if kind is None and job.augmentation.name in ("medium", "strong"):
        message = "The only augmentation of this task is light, which is used instead."
        return [Problem("augmentation", message, "Choose none or light.", "warning")]
    if job.augmentation.name != "own":
        return []
    if kind is None:
        return [Problem("augmentation", "This task has no images to transform.", "Choose none or light.")]
    if not job.augmentation.transforms:
        remedy = "Give some, such as resized_crop:0.35:1, flip and color:0.2, or choose a strength."
        return [Problem("transforms", "No transforms are listed.", remedy)]
    return [parsed for text in job.augmentation.transforms if isinstance(parsed := parse(text, kind), Problem)]
