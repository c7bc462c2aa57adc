"""Warning of masks that number objects where they should hold classes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.problems import Problem
from engine.data.decoding.numbered_masks import count_numbered_objects
from engine.data.splits import warn

REMEDY = (
    "To find objects one by one, choose the task Instance segmentation. To learn only where they are, give all of "
    "them the same value."
)


def told_of_numbers(masks: Sequence[str]) -> list[Problem]:
    """Return a warning if masks that should hold classes seem to number objects."""
    most = count_numbered_objects(masks)
    if not most:
        return []
    message = (
        f"The masks seem to number objects, {most:,} or more in one of them, but this task takes each number for "
        f"a class."
    )
    return [warn(message, REMEDY)]
