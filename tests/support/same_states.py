"""Whether two trainings have come to the same state, to the bit."""

from __future__ import annotations

from typing import Any

import torch


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Where two checkpoints are not the same to the bit."""
    if isinstance(theirs, torch.Tensor):
        return [] if torch.equal(ours, theirs) else [where]
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), (where, ours.keys(), theirs.keys())
        return [name for key in theirs for name in differences(ours[key], theirs[key], f"{where}/{key}")]
    if isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), where
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [name for number, pair in pairs for name in differences(*pair, f"{where}/{number}")]
    return [] if ours == theirs else [where]
