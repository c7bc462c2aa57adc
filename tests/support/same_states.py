"""Bit-exact comparison of training states."""

from __future__ import annotations

from typing import Any

import torch


def find_differences(first: Any, second: Any, where: str = "") -> list[str]:
    """Return the paths of all values that differ between two checkpoints.

    `first` and `second` are checkpoints, or values in them. `where` is the path of these values, or "" for checkpoints.
    """
    if isinstance(second, torch.Tensor):
        return [] if torch.equal(first, second) else [where]
    if isinstance(second, dict):
        assert first.keys() == second.keys(), (where, first.keys(), second.keys())
        return [name for key in second for name in find_differences(first[key], second[key], f"{where}/{key}")]
    if isinstance(second, list | tuple):
        assert len(first) == len(second), where
        pairs = enumerate(zip(first, second, strict=True))
        return [name for number, pair in pairs for name in find_differences(*pair, f"{where}/{number}")]
    return [] if first == second else [where]
