"""Start of a run in a SLURM job, with a stand-in for scontrol."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.events import AnyEvent, CommandReceived, Outcome, RunFinished
from engine.contract.hosts import SLURM
from engine.contract.job import Job, save_job
from engine.contract.protocol import ENCODE
from engine.machines import slurm
from engine.runs.folder import RunFolder, create_run
from engine.runs.slurm_job import read_slurm
from engine.system import stdio
from tests.engine.checks.machines import gpu, machine
from tests.gui.sources.written_runs import list_run_events, write
from tests.support.images import write_noise
from tests.support.scripts import write_script


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


def test_run_gets_the_devices_of_all_nodes_of_the_job(run: RunFolder, tmp_path: Path) -> None:
    write_script(tmp_path / "scontrol", "printf 'n1\\nn2\\nn3\\n'")
    assert slurm.supervise_slurm(run.path) == 0
    job = run.job()
    assert job is not None
    assert job.parallel.devices == ("cpu", f"{SLURM}n1:cpu", f"{SLURM}n3:cpu")
    state = read_slurm(run.path)
    assert state is not None
    assert (state.job_id, state.state) == (12, "COMPLETED")


def test_run_without_nodes_fails_with_a_reason(run: RunFolder, tmp_path: Path) -> None:
    write_script(tmp_path / "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert slurm.supervise_slurm(run.path) == 1
    state, last = read_slurm(run.path), run.last_event()
    assert state is not None
    assert (state.job_id, state.state) == (12, "FAILED")
    assert isinstance(last, RunFinished)
    assert "Unable to contact slurm controller" in last.cause


@pytest.mark.parametrize(
    ("commands", "outcome", "state"),
    [
        (["SIGUSR1"], "paused", "PENDING"),
        (["SIGUSR1", "pause"], "paused", "PENDING"),
        (["SIGUSR1"], "stopped", "COMPLETED"),
        (["pause"], "paused", "COMPLETED"),
        (["SIGUSR1", None], "paused", "COMPLETED"),
    ],
)
def test_only_a_run_paused_by_slurm_is_requeued(
    run: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    commands: list[str | None],
    outcome: Outcome,
    state: str,
) -> None:
    started = next(iter(list_run_events(Job(), 1, None)))
    events: list[AnyEvent] = [CommandReceived(command=each) if each else started for each in commands]

    def supervise(_folder: Path) -> int:
        write(run.events_file, [*events, RunFinished(outcome=outcome, cause="", seconds=1.0)])
        return 0

    monkeypatch.setattr(slurm, "supervise", supervise)
    write_script(tmp_path / "scontrol", "printf 'n1\\nn2\\n'")
    assert slurm.supervise_slurm(run.path) == 0
    found = read_slurm(run.path)
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize(("outcome", "code"), [("completed", 0), ("stopped", 1)])
def test_only_a_completed_run_is_not_supervised_again(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, outcome: Outcome, code: int
) -> None:
    monkeypatch.setattr(slurm, "supervise", lambda _folder: 1)
    write_script(tmp_path / "scontrol", "echo n1")
    write(run.events_file, [RunFinished(outcome=outcome, cause="", seconds=1.0)])
    assert slurm.supervise_slurm(run.path) == code


def test_run_gets_the_gpus_of_all_nodes(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (
        gpu(0, uuid="GPU-b", cuda_index=1),
        gpu(1, uuid="GPU-a", cuda_index=0),
        gpu(2, uuid="GPU-none", cuda_index=None),
        gpu(3, uuid="GPU-lost", cuda_index=2, lost=True),
    )
    (tmp_path / "state").write_bytes(ENCODE.encode(machine(gpus[1])))
    write_script(tmp_path / "scontrol", "printf 'n1\\nn2\\n'")
    write_script(tmp_path / "srun", f"exec cat {tmp_path}/state")
    monkeypatch.setattr(slurm, "snapshot", lambda: machine(*gpus))
    monkeypatch.setattr(slurm, "job_problems", lambda *_: [])
    job = Job.from_fields(strategy="ddp", devices=("GPU-x",))
    save_job(job, run.job_file)
    assert slurm.supervise_slurm(run.path) == 0
    resolved = run.job()
    assert resolved is not None
    assert resolved.parallel.devices == ("GPU-a", "GPU-b", f"{SLURM}n1:GPU-a")


@pytest.mark.parametrize(("job_id", "node"), [("", "n2"), ("12", ""), ("12a", "n2")])
def test_start_without_slurm_is_refused(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job_id: str, node: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job_id)
    monkeypatch.setenv("SLURMD_NODENAME", node)
    assert slurm.supervise_slurm(run.path) == 2
    assert "SLURM did not start this process" in capsys.readouterr().err
    assert read_slurm(run.path) is None
