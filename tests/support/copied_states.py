"""Recorder of the optimizer bytes that each rank copies for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.contract.worker import WorkerSpec
from engine.optim.optimizer_step import OptimizerStep


def record_copied_bytes(spec: WorkerSpec) -> None:
    """Make the worker record how many bytes of optimizer state it copies for a checkpoint."""
    state_dict = OptimizerStep.state_dict

    def copy_and_record(optimizer_step: OptimizerStep, *arguments: Any) -> dict[str, Any]:
        state = state_dict(optimizer_step, *arguments)
        live = {tensor.data_ptr() for tensor in _tensors(optimizer_step.optimizer.state_dict())}
        copied = sum(tensor.nbytes for tensor in _tensors(state["state"]) if tensor.data_ptr() not in live)
        _file(Path(spec.run_folder), spec.rank).write_text(str(copied))
        return state

    OptimizerStep.state_dict = copy_and_record  # type: ignore[method-assign, assignment]


def read_copied_bytes(folder: Path, rank: int) -> int:
    """Return the number of bytes that a rank copied for the latest checkpoint, or 0 if it copied none."""
    file = _file(folder, rank)
    return int(file.read_text()) if file.exists() else 0


def _file(folder: Path, rank: int) -> Path:
    return folder / f"copied-{rank}"


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
