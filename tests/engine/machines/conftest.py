"""Fixtures with two remote machines and a head, and helpers that compare trainings."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from engine.contract.events import Event, StepMetrics, Validation
from engine.runs.folder import RunFolder
from engine.training.checkpointing.checkpoint_files import read_checkpoint
from tests.engine.conftest import SIDE, make_images
from tests.support.machines import Machines, find_obstacle
from tests.support.waiting import wait_until

LIMIT = 1e-6
Kind = TypeVar("Kind", bound=Event)
QUICK = (
    *("--model", "mnist_cnn", "--image-size", str(SIDE), "--batch-size", "12", "--loader-workers", "1", "--recipe", ""),
    *("--memory-format", "contiguous", "--learning-rate", "0.02", "--precision", "fp32"),
    *("--cpu-threads", "1"),  # the machines share one host, and each would use all its cores
)


class SimulatedMachines(Machines):
    """Simulated machines with a shared dataset, and the runs that are started on their head."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.images = make_images(folder / "images", {"train": 24, "val": 7})
        for name in self.names:
            assert self.footplate("hosts", "add", name, "--no-check").returncode == 0

    def runs(self) -> list[RunFolder]:
        folder = self.home / "runs"
        return [RunFolder(path) for path in sorted(folder.iterdir())] if folder.exists() else []

    def train(self, devices: str, *flags: str) -> RunFolder:
        """Run `footplate train` on the head with these devices and `flags`, wait for its end, and return the run."""
        before = {run.run_id for run in self.runs()}
        done = self.footplate("train", str(self.images), *QUICK, "--devices", devices, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        return next(run for run in self.runs() if run.run_id not in before)

    def begin(self, devices: str, *flags: str) -> RunFolder:
        """Start a run that is too long to finish, and return it when it has saved three checkpoints.

        `devices` and `flags` are arguments of `footplate train` on the head.
        """
        done = self.footplate(
            "train", str(self.images), *QUICK, "--devices", devices, "--epochs", "9000", "--detach", *flags
        )
        assert done.returncode == 0, done.stderr
        run = next(run for run in self.runs() if run.run_id == done.stdout.strip())
        wait_until(
            lambda: len(events_of(run, "checkpoint")) > 2, "checkpoints", 240, describe_state=lambda: list(run.events())
        )
        return run

    def stop(self, run: RunFolder) -> None:
        self.footplate("stop", run.run_id)
        wait_until(lambda: run.state() != "running", "the end", 30)

    def move_to_head(self, folder: Path) -> RunFolder:
        """Move the folder of a run from another machine to the head, and return the run there."""
        return RunFolder(folder.rename(self.home / "runs" / folder.name))

    def list_leftovers(self) -> list[str]:
        """Return descriptions of the processes, listening sockets and run files that remain on the machines."""
        processes = [f"{name}: {process.cmdline()}" for name in self.names for process in self.find_processes(name)]
        listening = [f"{name}: {one}" for name in self.names for one in self.find_listening_addresses(name)]
        files = [str(path) for name in self.names for path in self.home_of(name).rglob("*") if path.is_file()]
        return processes + listening + files


def events_of(run: RunFolder, kind: str) -> list[Event]:
    """Return the events of a run whose type has the tag `kind` in the log, such as "step" or "validation"."""
    return [event for event in run.events() if event.__struct_config__.tag == kind]


def assert_same_training(run: RunFolder, other: RunFolder, *, steps: int) -> None:
    """Check that two runs have the same first loss, metrics after each epoch, and final weights.

    Both runs must have ended with a validation after step `steps`.
    """
    first, second = (
        next(event for event in events_of(each, "step") if isinstance(event, StepMetrics)) for each in (run, other)
    )
    assert first.step == second.step == 1
    assert first.loss == pytest.approx(second.loss, rel=LIMIT)
    validations = [
        [event for event in events_of(each, "validation") if isinstance(event, Validation)] for each in (run, other)
    ]
    for one, two in zip(*validations, strict=True):
        assert one.step == two.step
        assert one.measures == pytest.approx(two.measures, rel=LIMIT)
    assert validations[0][-1].step == steps
    states = [read_checkpoint(each.checkpoints / "last.pt")[0]["model"] for each in (run, other)]
    torch.testing.assert_close(states[0], states[1], rtol=LIMIT, atol=LIMIT)


@pytest.fixture(scope="module")
def bed() -> Iterator[SimulatedMachines]:
    if why := find_obstacle():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fpb"))
    bed = SimulatedMachines(folder)
    yield bed
    bed.close()
    shutil.rmtree(folder)
