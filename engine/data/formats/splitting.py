"""Training and validation images from whatever splits a folder has. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.splits import draw_validation, warn, wrong


class Divisible(Protocol):
    """A split of images as files that can be divided."""

    @property
    def files(self) -> Sequence[str]: ...

    def select(self, which: npt.NDArray[np.bool_], *, made: bool) -> Self:
        """The images for which `which`, bool [n], is true; `made` where the folder has no such split."""


Split = TypeVar("Split", bound=Divisible)


def train_and_val(
    splits: Mapping[str, Split],
    folder: str,
    problems: list[Problem],
    *,
    val_fraction: float,
    seed: int,
    layout: str,
    nothing: str = "There are annotations, but none for training images.",
) -> tuple[Split, Split] | None:
    """The training and the validation split of `splits` ("train", "val" and "test", or "" if there are none); None if
    there is nothing to train on, which is then reported as `nothing`. Adds to `problems`."""
    there = {name: split for name, split in splits.items() if len(split.files)}
    if "val" not in there and "test" in there and "train" in there:
        problems.append(
            warn(
                "There is no validation split; the test images serve as one.",
                "Add one to keep the test images for a final, independent evaluation.",
            )
        )
        there["val"] = there["test"]
    whole = there.get("train") or there.get("")
    if whole is None:
        problems.append(wrong(nothing, layout))
        return None
    if "val" in there:
        return whole, there["val"]
    keys = (os.fsencode(os.path.relpath(path, folder)) for path in whole.files)
    chosen = draw_validation(keys, np.zeros(len(whole.files), np.int64), val_fraction, seed)
    if not chosen.any():
        problems.append(wrong("There are too few images to hold any out for validation.", "Add some, or a val folder."))
    return whole.select(~chosen, made=False), whole.select(chosen, made=True)
