"""Access to a run and its model from Python code."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.contract.problems import Problem
from engine.inference.trained_model import CannotLoad, TrainedModel, load, read_plan
from engine.runs.folder import run_at
from engine.runs.index import find_run


class Run:
    """Run of Footplate, opened by "last", its id or the beginning of its id, its name, or its folder.

    `job` is its job, and `classes` are the names of its classes. Raises CannotLoad if there is no such run, or if its
    training has not started.
    """

    def __init__(self, run: str | Path) -> None:
        folder = run_at(run) or find_run(str(run))
        if folder is None:
            raise CannotLoad(Problem("run", f"There is no run “{run}”.", "`footplate runs` lists all runs."))
        self._run = folder
        self.job, planned = read_plan(folder)
        self.classes = planned.classes

    @property
    def folder(self) -> Path:
        return self._run.path

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the available checkpoints, without ".pt": "best", "last" and older ones ("epoch-2-step-345")."""
        return tuple(path.stem for path in sorted(self._run.checkpoints.glob("*.pt")))

    def load(self, checkpoint: str = "best", device: str | None = None) -> TrainedModel:
        """Load the model with the weights of a checkpoint in evaluation mode. Raises CannotLoad.

        `checkpoint` is "best", "last" or the number of an epoch. `device` is a name for torch.device. If it is None,
        the first GPU is used, or the CPU if there is none.
        """
        return load(self._run, checkpoint, device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
