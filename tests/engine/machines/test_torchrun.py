"""Commands that `footplate torchrun` prints, and runs that PyTorch's launcher starts with these commands."""

from __future__ import annotations

import os
import shlex
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from engine.contract.command import torchrun_lines
from engine.contract.events import Failed, LogLine, RunFinished
from engine.contract.job import Job, job_from_values
from engine.contract.protocol import ENCODE
from engine.contract.worker import BY_ENVIRONMENT, WorkerSpec
from engine.machines import torchrun
from engine.runs.folder import RunFolder
from engine.runs.index import list_runs
from engine.system import linux, paths, stdio
from tests.engine.machines.conftest import QUICK, SimulatedMachines, assert_same_training
from tests.gui.sources.written_runs import write
from tests.support.specs import make_worker_spec

FLAGS = ("--strategy", "ddp", "--epochs", "2")


def test_torchrun_line_contains_job() -> None:
    job = Job.from_fields(dataset="/data/it's here", strategy="ddp", devices=("cpu", "cpu"), learning_rate=0.02)
    lines, problems = torchrun_lines(job)
    arguments = shlex.split(lines["this machine"])
    assert not problems
    assert arguments[arguments.index("--nproc-per-node") + 1] == "2"
    assert job_from_values(msgspec.json.decode(arguments[-1]))[0] == job
    automatic = job.with_fields(strategy="auto", devices=("GPU-1", "GPU-2"))
    assert "--nproc-per-node 2" in torchrun_lines(automatic)[0]["this machine"]
    for alone in (
        Job.from_fields(devices=("cpu",), strategy="ddp"),
        Job.from_fields(devices=("cpu", "cpu"), strategy="dp"),
    ):
        lines, [problem] = torchrun_lines(alone)
        assert not lines
        assert problem.field == "strategy"


def test_torchrun_lines_of_several_machines(separate_home: Path) -> None:
    separate_home.mkdir(mode=0o700)
    (separate_home / "hosts.toml").write_text(
        '[[host]]\nname = "node1"\ndestination = "anna@10.0.0.8"\nfolder = "~/my venv/"\nport = 30000\n'
        '[[host]]\nname = "node2"\naddress = "10.1.1.2"\n'
    )
    lines, _ = torchrun_lines(Job.from_fields(strategy="ddp", devices=("node1:cpu", "node1:cpu", "cpu")))
    first, second = lines["node1"], lines["this machine"]
    assert first.startswith("~/'my venv/bin/torchrun' --nnodes 2 --node-rank 0 --nproc-per-node 2")
    assert second.startswith("torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1")
    assert all("--master-addr 10.0.0.8 --master-port 30000" in line for line in (first, second))
    lines, [problem] = torchrun_lines(Job.from_fields(strategy="ddp", devices=("cpu", "node1:cpu")))
    assert not lines
    assert "--address" in problem.remedy
    lines, _ = torchrun_lines(Job.from_fields(strategy="ddp", devices=("node2:cpu", "cpu")))
    assert all("--master-addr 10.1.1.2 --master-port 29400" in line for line in lines.values())
    lines, [problem] = torchrun_lines(Job.from_fields(strategy="ddp", devices=("node1:cpu", "cpu", "node1:cpu")))
    assert (lines, problem.field) == ({}, "devices")


JOB_TEXT = '{"strategy": "ddp", "devices": ["cpu", "cpu", "node1:cpu", "node1:cpu"]}'
RANK_0_OF_4: dict[str, object] = {
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29400, "RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2,
    "TORCHELASTIC_RESTART_COUNT": 0,
}  # fmt: skip


def act_as_rank(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Let this process be rank 0 of 4 that torchrun has started. `changes` override its environment variables."""
    monkeypatch.setattr(linux, "die_with_parent", lambda _parent: None)
    for name, value in (RANK_0_OF_4 | changes).items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize(
    ("text", "changes", "messages"),
    [
        (JOB_TEXT, {"RANK": "first"}, ["torchrun did not start this process."]),
        ("{3", {}, ["The job is not JSON"]),
        ('{"epochs": 0}', {}, ["Epochs: 0 is out of range."]),
        ("/no/job.json", {}, ["/no/job.json"]),
        (JOB_TEXT, {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}, ["The job has 4 workers, and torchrun started 3."]),
        (JOB_TEXT, {"WORLD_SIZE": 3, "RANK": 1, "LOCAL_RANK": 1}, []),  # reported by the first rank of the machine
        (JOB_TEXT, {"LOCAL_WORLD_SIZE": 3}, ["belong to devices of several machines."]),
        (JOB_TEXT, {"RANK": 2, "TORCHELASTIC_RESTART_COUNT": 1}, ["does not continue a run that torchrun restarts."]),
    ],
)
def test_unusable_torchrun_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    changes: dict[str, object],
    messages: list[str],
) -> None:
    act_as_rank(monkeypatch, **changes)
    assert torchrun.main([text]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [message in line for message, line in zip(messages, lines, strict=True)] == [True] * len(messages)


def test_first_process_of_another_machine_starts_the_others(
    monkeypatch: pytest.MonkeyPatch, separate_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs: list[WorkerSpec] = []

    def run_worker(spec: WorkerSpec, _worker: str, channel: socket.socket) -> int:
        specs.append(spec)
        for event in (LogLine(text="shown elsewhere"), Failed(cause="It broke.", rank=spec.rank)):
            channel.sendall(ENCODE.encode(event) + b"\n")
        return spec.rank

    bound: list[str] = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(torchrun, "bind_collectives", bound.append)
    monkeypatch.setattr(torchrun, "usable_cores", lambda: 8)
    monkeypatch.setattr(torchrun, "worker_environment", lambda _spec: {})
    monkeypatch.setattr(torchrun, "run_worker", run_worker)
    monkeypatch.setattr(torchrun, "time", SimpleNamespace(sleep=lambda _s: pytest.fail("waits")))
    for rank, local_rank in ((2, 0), (3, 1)):
        act_as_rank(monkeypatch, RANK=rank, LOCAL_RANK=local_rank)
        assert torchrun.main([JOB_TEXT]) == rank
        assert capsys.readouterr().err == f"Rank {rank}: It broke.\n"
    assert bound == ["127.0.0.1"] * 2
    found = [(spec.rank, spec.world_size, spec.threads, spec.rendezvous) for spec in specs]
    assert found == [(2, 4, 4, BY_ENVIRONMENT), (3, 4, 4, BY_ENVIRONMENT)]
    assert not [*separate_home.glob("nodes/*"), *paths.runtime_folder().glob(f"torchrun-{os.getppid()}-*")]


def test_rank_0_supervises_and_reports_the_outcome(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    specs: list[WorkerSpec] = []

    def supervise(folder: Path, distribute: Callable[[list[WorkerSpec]], list[WorkerSpec]]) -> int:
        job = RunFolder(folder).job()
        assert job is not None
        specs.extend(distribute([make_worker_spec(job, rank=rank, rendezvous="file") for rank in (0, 1)]))
        write(RunFolder(folder).events_file, [RunFinished(outcome="failed", cause="It broke.", seconds=1.0)])
        return 3

    act_as_rank(monkeypatch, WORLD_SIZE=2)
    monkeypatch.setattr(stdio, "redirect_output", lambda _path: None)
    monkeypatch.setattr(torchrun, "supervise", supervise)
    assert torchrun.main(['{"strategy": "ddp", "devices": ["cpu", "cpu"]}']) == 3
    (run,) = list_runs()
    assert capfd.readouterr().err == f"Run {run.run_id} in {run.path}\nRun {run.run_id} failed. It broke.\n"
    assert [(spec.rank, spec.rendezvous) for spec in specs] == [(0, "file")]
    (file,) = paths.runtime_folder().glob(f"torchrun-{os.getppid()}-*-1.json")
    assert msgspec.json.decode(file.read_bytes(), type=WorkerSpec).rendezvous == "file"
    file.unlink()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("devices", ["cpu,cpu", "node1:cpu,node2:cpu"])
def test_torchrun_trains_like_footplate(bed: SimulatedMachines, devices: str) -> None:
    here = bed.train("cpu,cpu", *FLAGS)
    printed = bed.footplate("torchrun", str(bed.images), *QUICK, "--devices", devices, *FLAGS)
    assert printed.returncode == 0, printed.stderr
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == (1 if devices == "cpu,cpu" else 2)
    names = bed.names if len(lines) == 2 else ("node1",)
    running = [bed.start_on(name, line) for name, line in zip(names, lines, strict=True)]
    outputs = [each.communicate(timeout=300)[0] for each in running]
    assert [each.returncode for each in running] == [0] * len(lines), outputs
    assert " completed." in outputs[0]
    [folder] = (bed.home_of("node1") / "runs").iterdir()
    remote = bed.move_to_head(folder)
    assert_same_training(remote, here, steps=12)
    assert {path.name for path in remote.checkpoints.iterdir()} == {path.name for path in here.checkpoints.iterdir()}
    assert "last.pt" in bed.footplate("attach", remote.run_id).stdout
    assert not any(bed.find_processes(name) for name in bed.names)
