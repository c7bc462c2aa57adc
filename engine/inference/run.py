"""A run by its id, its name or its folder, and its model to be used from Python."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.inference.trained_model import CannotLoad, TrainedModel, load
from engine.runs.folder import RunFolder
from engine.runs.index import find_run


class Run:
    """A run of Footplate's: "last" for the newest, its id or the beginning of one, its name, or its folder.

    `job` is what was trained, `classes` the names of what was learnt, `checkpoints` what `load` can take, `folder`
    where it all is. Raises CannotLoad where there is no such run, or it has not begun to train.
    """

    def __init__(self, run: str | Path) -> None:
        path = Path(run).expanduser()
        found = RunFolder(path.absolute()) if (path / "job.toml").is_file() else find_run(str(run))
        if found is None:
            raise CannotLoad(Problem("run", f"There is no run “{run}”.", "`footplate runs` lists all runs."))
        job, planned = found.job(), found.planned()
        if job is None:
            raise CannotLoad(Problem("run", f"The job of {found.run_id} can't be read.", "Choose another run."))
        if planned is None:
            message = f"{found.run_id} has not begun to train."
            raise CannotLoad(Problem("run", message, "Choose a run that has a checkpoint."))
        self._run = found
        self.job: Job = job
        self.classes: tuple[str, ...] = planned.classes

    @property
    def folder(self) -> Path:
        """Its folder."""
        return self._run.path

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoints that there are: "best", "last", and those of single epochs."""
        return tuple(path.stem for path in sorted(self._run.checkpoints.glob("*.pt")))

    def load(self, checkpoint: str = "best", device: str | None = None) -> TrainedModel:
        """Its model with the weights of a checkpoint ("best", "last", or the number of an epoch), in evaluation mode
        on `device`, which is what torch.device takes: by default the first GPU if there is one, else the CPU. Raises
        CannotLoad.
        """
        return load(self._run, checkpoint, device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
