"""Start of a run in a SLURM job, with a stand-in for scontrol."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.events import RunFinished
from engine.contract.hosts import SLURM
from engine.contract.job import Job
from engine.machines import slurm
from engine.runs.folder import RunFolder, create_run
from engine.runs.slurm_job import read_slurm
from engine.system import stdio
from tests.support.images import write_noise


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    """Return a run whose batch step starts on node n2. The supervisor is replaced by a function that returns 0."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50022 192.0.2.7 22")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(stdio, "redirect_output", lambda _path: None)
    monkeypatch.setattr(slurm, "supervise", lambda _folder: 0)
    for number in range(8):
        write_noise(tmp_path / f"data/{'ab'[number % 2]}/{number}.png", number)
    handler = signal.getsignal(signal.SIGUSR1)
    yield create_run(Job.from_fields(dataset=str(tmp_path / "data"), strategy="ddp", devices=("cpu",)))
    signal.signal(signal.SIGUSR1, handler)


def write_scontrol(folder: Path, script: str) -> None:
    (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "scontrol").chmod(0o700)


def test_run_gets_the_devices_of_all_nodes_of_the_job(run: RunFolder, tmp_path: Path) -> None:
    write_scontrol(tmp_path, "printf 'n1\\nn2\\nn3\\n'")
    assert slurm.supervise_slurm(run.path) == 0
    job = run.job()
    assert job is not None
    assert job.parallel.devices == ("cpu", f"{SLURM}n1:cpu", f"{SLURM}n3:cpu")
    state = read_slurm(run.path)
    assert state is not None
    assert (state.job_id, state.state) == (12, "COMPLETED")


def test_run_without_nodes_fails_with_a_reason(run: RunFolder, tmp_path: Path) -> None:
    write_scontrol(tmp_path, "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert slurm.supervise_slurm(run.path) == 1
    state, last = read_slurm(run.path), run.last_event()
    assert state is not None
    assert (state.job_id, state.state) == (12, "FAILED")
    assert isinstance(last, RunFinished)
    assert "Unable to contact slurm controller" in last.cause


@pytest.mark.parametrize(("job_id", "node"), [("", "n2"), ("12", ""), ("12a", "n2")])
def test_start_without_slurm_is_refused(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job_id: str, node: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job_id)
    monkeypatch.setenv("SLURMD_NODENAME", node)
    assert slurm.supervise_slurm(run.path) == 2
    assert "SLURM did not start this process" in capsys.readouterr().err
    assert read_slurm(run.path) is None
