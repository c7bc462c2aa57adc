"""What is called in workers before they train, to note where their steps wait for the GPU."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from engine.contract.worker import WorkerSpec
from engine.training.loop import Loop

ENGINE = str(Path(__file__).parents[2] / "engine") + "/"
TORCHVISION = "/torchvision/"


def note_synchronisation(spec: WorkerSpec) -> None:
    """Notes from the second step of each epoch on, in `waits-RANK` of the run's folder, a line for each operation that
    synchronises with the GPU: the innermost frame that is neither torch's nor Python's.

    Source: torch.cuda.set_sync_debug_mode, whose warnings are raised where the operation was called.
    """
    path = Path(spec.run_folder) / f"waits-{spec.rank}"
    adjust, train = Loop._adjust, Loop._train

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if "synchronizing CUDA operation" not in str(message):
            return
        frames = [
            f"{frame.filename.removeprefix(ENGINE)}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_stack()
            if frame.filename.startswith(ENGINE) or TORCHVISION in frame.filename
        ]
        with path.open("a") as file:
            file.write(f"{frames[-1]}\n")

    def watched(self: Loop) -> None:
        if self.step > self.begin.step:
            torch.cuda.set_sync_debug_mode("warn")
        adjust(self)

    def trained(self: Loop, epoch: int, done: int) -> tuple[int, bool]:
        try:
            return train(self, epoch, done)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    warnings.simplefilter("always")
    warnings.showwarning = show
    Loop._adjust, Loop._train = watched, trained  # type: ignore[method-assign]
    path.touch()


def note_dtypes(spec: WorkerSpec) -> None:
    """Notes in `dtypes` of the run's folder, a line each, in what dtype linear layers compute in training."""
    forward = torch.nn.Linear.forward
    path = Path(spec.run_folder) / "dtypes"

    def noting(self: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        made = forward(self, inputs)
        with path.open("a") as file:
            file.write(f"{made.device} {made.dtype}\n")
        return made

    torch.nn.Linear.forward = noting  # type: ignore[method-assign]
