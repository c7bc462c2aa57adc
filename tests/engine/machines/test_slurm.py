"""Runs on a real SLURM cluster with two nodes.

Results must equal those of local runs, and runs must resume exactly after SLURM's warning signal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from engine.contract.events import CheckpointSaved, RunFinished, StepMetrics
from engine.runs.folder import RunFolder
from engine.runs.slurm_job import read_slurm
from engine.training.checkpointing.checkpoint_files import read_checkpoint
from tests.engine.conftest import make_images
from tests.engine.machines.conftest import QUICK, assert_same_training, events_of
from tests.support.slurm import NODES, Slurm, find_obstacle
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

ON_TWO = ("--nodes", "2", "--gpus-per-node", "0", "--strategy", "ddp")
LONG = ("--epochs", "200")
"""Flags for a training that takes longer than SLURM waits before it sends its warning signal."""


class SlurmCluster(Slurm):
    """SLURM cluster, a dataset, and the runs that were submitted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.images = make_images(folder / "images", {"train": 24, "val": 7})

    def submit(self, *flags: str) -> RunFolder:
        done = self.footplate("submit", str(self.images), *QUICK, *ON_TWO, *flags)
        assert done.returncode == 0, done.stderr
        run = RunFolder(self.home / "runs" / done.stdout.split()[-1])
        assert f"Job {self.number(run)}," in done.stdout
        return run

    def number(self, run: RunFolder) -> int:
        job = read_slurm(run.path)
        assert job is not None
        return job.job_id

    def state(self, run: RunFolder) -> str:
        return self.run("squeue", "-h", "--states=all", "-j", str(self.number(run)), "-o", "%T").strip()

    def limit(self, run: RunFolder, minutes: int) -> None:
        self.run("scontrol", "update", f"jobid={self.number(run)}", f"timelimit={minutes}")

    def until_over(self, run: RunFolder, patience_s: float = 240) -> None:
        wait_until(
            lambda: self.state(run) not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"),
            "the end of the run",
            patience_s,
            describe_state=lambda: f"{self.state(run)}: {list(run.events())[-3:]} {self.log_of(run)}",
        )

    def until_training(self, run: RunFolder) -> None:
        wait_until(
            lambda: bool(events_of(run, "checkpoint")),
            "a checkpoint",
            180,
            describe_state=lambda: self.log_of(run),
        )

    def log_of(self, run: RunFolder) -> str:
        logs = [run.path / name for name in ("slurm.log", "supervisor.log", "node-1.log")]
        return "\n".join(f"{log.name}: {log.read_text()}" for log in logs if log.exists())

    def list_leftovers(self) -> list[str]:
        """Return descriptions of the run processes and files that remain on the nodes."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = process.environ().get("FOOTPLATE_HOME") == str(self.home)
                found += [str(process.cmdline())] if is_ours and process.name().startswith("footplate") else []
        folder = self.home / "nodes"
        return found + [str(path) for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmCluster]:
    if why := find_obstacle():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fps"))
    bed = SlurmCluster(folder)
    yield bed
    bed.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def undisturbed(bed: SlurmCluster) -> RunFolder:
    run = bed.submit(*LONG)
    bed.until_over(run, 600)
    assert run.state() == "completed", bed.log_of(run)
    return run


def test_two_slurm_nodes_train_like_one_machine(bed: SlurmCluster) -> None:
    remote = bed.submit("--epochs", "3")
    bed.until_over(remote)
    assert bed.state(remote) == "COMPLETED", bed.log_of(remote)
    known = bed.footplate("runs").stdout
    here = bed.footplate("train", str(bed.images), *QUICK, "--strategy", "ddp", "--devices", "cpu,cpu", "--epochs", "3")
    assert here.returncode == 0, here.stderr
    [run] = [RunFolder(path) for path in (bed.home / "runs").iterdir() if path != remote.path]
    assert_same_training(remote, run, steps=18)
    assert remote.summary().slurm == f"job {bed.number(remote)} is completed"
    job = remote.job()
    assert job is not None
    assert job.parallel.devices == ("cpu", "slurm:n2:cpu")
    assert f"{remote.run_id}" in known
    assert "completed" in known
    assert bed.list_leftovers() == []


@pytest.mark.parametrize("host", ["", "login"])
def test_pending_run_shows_reason_and_can_be_stopped(bed: SlurmCluster, host: str) -> None:
    bed.run("scontrol", "update", f"nodename={','.join(NODES)}", "state=drain", "reason=test")
    run = bed.submit(*LONG, "--slurm-host", host)
    assert run.state() == "waiting"
    wait_until(lambda: "is pending: " in bed.footplate("runs").stdout, "the reason", 30)
    listed = bed.footplate("runs").stdout
    assert f"waiting (job {bed.number(run)} is pending: " in listed
    assert "place 1" in listed
    assert "can only be stopped" in bed.footplate("pause", run.run_id).stderr
    stopped = bed.footplate("stop", run.run_id)
    assert stopped.returncode == 0, stopped.stderr
    assert "is stopped; its devices are free" in stopped.stdout
    assert bed.state(run) == "CANCELLED"
    assert run.state() == "stopped"
    bed.run("scontrol", "update", f"nodename={','.join(NODES)}", "state=resume")
    assert bed.list_leftovers() == []


def test_running_run_is_stopped_from_another_machine(bed: SlurmCluster) -> None:
    run = bed.submit("--epochs", "9000", "--slurm-host", "login")
    bed.until_training(run)
    assert "running (job" in bed.footplate("runs", elsewhere=True).stdout
    stopped = bed.footplate("stop", run.run_id, elsewhere=True)
    assert stopped.returncode == 0, stopped.stderr
    assert "is stopped" in stopped.stdout
    assert "holds step" in stopped.stdout
    bed.until_over(run)
    assert bed.state(run) == "COMPLETED"
    assert (run.checkpoints / "last.pt").exists()
    refused = bed.footplate("resume", run.run_id)
    assert refused.returncode == 2
    assert "sbatch slurm.sh" in refused.stderr
    assert bed.list_leftovers() == []


@pytest.mark.parametrize("warned_by", ["preemption", "time limit"])
def test_warned_run_is_requeued_and_continues_exactly(
    bed: SlurmCluster, undisturbed: RunFolder, warned_by: str
) -> None:
    run = bed.submit(*LONG)
    bed.until_training(run)
    if warned_by == "preemption":
        flags = ["--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null"]
        urgent = bed.run("sbatch", *flags, "--wrap=sleep 1")
        assert urgent.strip().isdecimal()
    else:
        minutes = bed.run("squeue", "-h", "-j", str(bed.number(run)), "-o", "%M").partition(":")[0]
        bed.limit(run, int(minutes) + 2)
    wait_until(lambda: bool(events_of(run, "run_finished")), "the end", 240, describe_state=lambda: bed.log_of(run))
    first = events_of(run, "run_finished")[0]
    assert isinstance(first, RunFinished)
    assert (first.outcome, first.execution) == ("paused", 1)
    wait_until(
        lambda: bed.state(run) == "PENDING", "the job to be queued again", 60, describe_state=lambda: bed.log_of(run)
    )
    assert run.state() == "waiting"
    bed.limit(run, 60)
    bed.until_over(run, 600)
    assert run.state() == "completed", bed.log_of(run)
    assert len(events_of(run, "run_finished")) == 2
    steps = [event.step for event in events_of(run, "step") if isinstance(event, StepMetrics)]
    assert steps == sorted(set(steps))
    assert any(isinstance(event, CheckpointSaved) for event in events_of(run, "checkpoint"))
    is_ours, theirs = (read_checkpoint(each.checkpoints / "last.pt")[0]["model"] for each in (run, undisturbed))
    torch.testing.assert_close(is_ours, theirs, rtol=0, atol=0)
    assert bed.list_leftovers() == []


def test_refused_submission_leaves_no_run(bed: SlurmCluster) -> None:
    before = sorted((bed.home / "runs").iterdir())
    done = bed.footplate("submit", str(bed.images), *QUICK, *ON_TWO, "--partition", "nowhere")
    assert done.returncode == 2
    assert "invalid partition specified: nowhere" in done.stderr
    done = bed.footplate("submit", str(bed.images), *QUICK, *ON_TWO, "--slurm-host", "nobody")
    assert done.returncode == 2
    assert "nobody can't be resolved" in done.stderr
    assert sorted((bed.home / "runs").iterdir()) == before
