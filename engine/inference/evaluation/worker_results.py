"""Results of each worker of an evaluation, and their merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.inference.evaluation import Skipped
from engine.inference.evaluation.sample_states import Packed, Recorder, States
from engine.tasks.analysis import Columns
from engine.training.checkpointing.checkpoint_files import read_checkpoint, write_checkpoint

_LISTS = ("correct", "true", "predicted", "confidence")


@dataclass
class WorkerResults:
    """Results of a worker's samples, by their overall numbers, in the order of processing."""

    samples: list[int] = field(default_factory=list)
    losses: list[float] | None = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    recorders: dict[str, Recorder] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    _probabilities: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def add(self, samples: Sequence[int], losses: Tensor | None, columns: Columns) -> None:
        """Add a batch; its metric states are added to the recorders."""
        self.samples += samples
        if losses is None:
            self.losses = None
        elif self.losses is not None:
            self.losses += losses.double().tolist()
        for name in _LISTS:
            added = getattr(columns, name)
            if added is not None:
                setattr(self.columns, name, [*(getattr(self.columns, name) or []), *added])
        if columns.probabilities is not None:
            self._probabilities.append(columns.probabilities)

    def write(self, path: Path) -> None:
        """Write the results. Raises CheckpointError."""
        content: dict[str, Any] = {
            "samples": self.samples,
            "losses": self.losses,
            "skipped": self.skipped,
            "columns": {name: getattr(self.columns, name) for name in _LISTS},
            "probabilities": torch.from_numpy(np.concatenate(self._probabilities)) if self._probabilities else None,
            "states": {name: tuple(recorder.packed()) for name, recorder in self.recorders.items()},
        }
        write_checkpoint(content, path)


@dataclass(frozen=True)
class Joined:
    """Results of all samples in the order of the split; `samples` holds their numbers, without skipped ones."""

    samples: npt.NDArray[np.int64]
    losses: list[float] | None
    columns: Columns
    states: dict[str, States]
    skipped: tuple[Skipped, ...]


def join(paths: Sequence[Path]) -> Joined:
    """Merge the results in `paths`. Raises OSError, DamagedCheckpoint."""
    results: list[dict[str, Any]] = [read_checkpoint(path)[0] for path in paths]
    nonempty = [each for each in results if each["samples"]]
    numbers = np.array([number for each in nonempty for number in each["samples"]], np.int64)
    order = np.argsort(numbers, kind="stable")
    probabilities = [each["probabilities"].numpy() for each in nonempty if each["probabilities"] is not None]
    columns = {name: _ordered([each["columns"][name] for each in nonempty], order) for name in _LISTS}
    return Joined(
        numbers[order],
        _ordered([each["losses"] for each in nonempty], order),
        Columns(**columns, probabilities=np.concatenate(probabilities)[order] if probabilities else None),
        {
            name: States([Packed(*each["states"][name]) for each in nonempty], order)
            for name in (nonempty[0]["states"] if nonempty else ())
        },
        tuple(Skipped(path=path, reason=reason) for each in results for path, reason in each["skipped"]),
    )


def _ordered(lists: Sequence[list[Any] | None], order: npt.NDArray[np.int64]) -> list[Any] | None:
    if any(each is None for each in lists):
        return None
    merged = [value for values in lists for value in values or ()]
    return [merged[index] for index in order.tolist()]
