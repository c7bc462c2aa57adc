"""Damaged checkpoints. A run must warn and resume from an older one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.contract.events import CommandReceived, Failed, Planned, RunFinished, Warned
from engine.contract.protocol import Stop
from engine.training.checkpointing.checkpoint_files import write_checkpoint
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.damage import Gate
from tests.faults.real_runs import RealRun, assert_same_checkpoints
from tests.support.cases import mark_long_cases
from tests.support.planting import FileCreator

pytestmark = pytest.mark.faults


def planted(path: Path) -> Path:
    return path.with_name("planted")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def plant(path: Path) -> None:
    torch.save({"model": FileCreator(planted(path))}, path)


def plant_with_a_checksum(path: Path) -> None:
    write_checkpoint({**torch.load(path, weights_only=True), "best": FileCreator(planted(path))}, path)


DAMAGES = [flip, cut, empty, make_a_folder, plant, plant_with_a_checksum]


@pytest.fixture
def stopped_run(job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str]) -> RealRun:
    """Start a run and stop it in its second epoch, with the checkpoints of its last two steps."""
    gate.permit_steps(7)
    run = start_run(job(**stepwise))
    gate.permit_steps(7, run)
    run.send(Stop())
    run.wait_for(CommandReceived)
    gate.permit_all_steps()
    assert run.wait_for_end().outcome == "stopped"
    return run


@pytest.mark.parametrize("damage", mark_long_cases(DAMAGES, everyday=[plant_with_a_checksum]))
def test_damaged_checkpoint_falls_back_to_an_older_one(
    stopped_run: RealRun, uninterrupted: Uninterrupted, damage: Callable[[Path], None]
) -> None:
    saved, before = stopped_run.saved, stopped_run.last_n
    damage(stopped_run.last)
    stopped_run.resume().completed(since=before)
    (warned,) = stopped_run.list_events(Warned, since=before)
    assert warned.code == "checkpoint_damaged"
    assert warned.message.startswith(f"{stopped_run.last} is damaged. Resuming from the previous checkpoint, epoch-")
    assert ", after step" in warned.message
    (planned,) = stopped_run.list_events(Planned, since=before)
    assert planned.from_step == saved - 1
    assert not planted(stopped_run.last).exists()
    assert_same_checkpoints(stopped_run.final_checkpoints, uninterrupted(stopped_run.job))


@pytest.mark.parametrize("damage", mark_long_cases([flip, make_a_folder, plant], everyday=[flip]))
def test_run_without_intact_checkpoint_fails_unchanged(stopped_run: RealRun, damage: Callable[[Path], None]) -> None:
    before = stopped_run.last_n
    (older,) = stopped_run.folder.checkpoints.glob("epoch-*.pt")
    damage(stopped_run.last)
    flip(older)
    saved_at = {path: path.stat().st_mtime_ns for path in stopped_run.folder.checkpoints.iterdir()}
    stopped_run.resume()
    assert stopped_run.wait_for_end(since=before).outcome == "failed"
    (failed,) = stopped_run.list_events(Failed, since=before)
    assert failed.kind == "error"
    assert failed.cause == (
        f"{stopped_run.last} is damaged, and so are the checkpoints before it ({older.name}). Train from the start; if its "
        "best.pt is intact, it can serve as the weights file."
    )
    assert isinstance(stopped_run.logged[-1], RunFinished)
    assert {path: path.stat().st_mtime_ns for path in stopped_run.folder.checkpoints.iterdir()} == saved_at
    assert not planted(stopped_run.last).exists()
