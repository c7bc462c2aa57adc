"""Training, validation and test images from whatever splits a folder has. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

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


class Divided(NamedTuple, Generic[Split]):
    """The splits of a folder. `test` is None where it has none, and `val` where its images serve for both."""

    train: Split
    val: Split
    test: Split | None


def divide(
    splits: Mapping[str, Split],
    folder: str,
    problems: list[Problem],
    *,
    val_fraction: float,
    seed: int,
    layout: str,
    nothing: str = "There are annotations, but none for training images.",
) -> Divided[Split] | None:
    """The training, validation and test split of `splits` ("train", "val" and "test", or "" if there are none); None if
    there is nothing to train on, which is then reported as `nothing`. Adds to `problems`. With a `val_fraction` of 0
    nothing is held out if there is no validation split, and there may be nothing to train on."""
    there = {name: split for name, split in splits.items() if len(split.files)}
    if val_fraction and "val" not in there and "test" in there and "train" in there:
        problems.append(
            warn(
                "There is no validation split; the test images serve as one.",
                "Add one to keep the test images for a final, independent evaluation.",
            )
        )
        there["val"] = there["test"]
    whole = there.get("train") or there.get("")
    if whole is None and there and not val_fraction:
        of_none = next(iter(there.values()))
        whole = of_none.select(np.zeros(len(of_none.files), bool), made=False)
    if whole is None:
        problems.append(wrong(nothing, layout))
        return None
    if "val" in there:
        return Divided(whole, there["val"], there.get("test"))
    keys = (os.fsencode(os.path.relpath(path, folder)) for path in whole.files)
    chosen = draw_validation(keys, np.zeros(len(whole.files), np.int64), val_fraction, seed)
    if val_fraction and not chosen.any():
        problems.append(wrong("There are too few images to hold any out for validation.", "Add some, or a val folder."))
    return Divided(whole.select(~chosen, made=False), whole.select(chosen, made=True), there.get("test"))
