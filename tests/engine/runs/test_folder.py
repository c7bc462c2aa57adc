"""States and summaries of runs, and processes that are recorded in run folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.contract.events import ENCODE, LogLine, StepMetrics, Waiting
from engine.runs.folder import (
    START_GRACE_S,
    RunFolder,
    RunSummary,
    SupervisorFile,
    create_run,
    is_process_alive,
    older_checkpoints,
    process_start,
    run_names,
    started_before_this_boot,
)
from engine.runs.interruptions import explain_interruption, record_fatal_signal
from engine.runs.slurm_job import SlurmJob, write_slurm
from engine.system import paths
from tests.engine.runs.test_resume import register_supervisor
from tests.gui.sources.written_runs import append_events, job, list_run_events, write_run
from tests.support.waiting import wait_until


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no zombies")
def test_only_the_recorded_process_counts_as_alive() -> None:
    start = process_start(os.getpid())
    assert is_process_alive(os.getpid(), start)
    assert not is_process_alive(os.getpid(), start - 2), "another process with this pid"
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(child.pid)
    assert is_process_alive(child.pid, start)
    child.kill()
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "the child to end")
    assert not is_process_alive(child.pid, start)
    child.communicate()
    assert not is_process_alive(child.pid, start)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux numbers its boots")
def test_process_start_identifies_the_boot() -> None:
    since_boot_s = psutil.Process().create_time() - psutil.boot_time()
    start, boots = process_start(os.getpid()), float(1 << 31)
    assert start % boots == pytest.approx(since_boot_s, abs=0.1)
    assert [started_before_this_boot(each) for each in (start, start - boots, start + boots)] == [False, True, True]


@pytest.mark.parametrize(
    ("log", "supervisor", "state"),
    [
        ("completed", "alive", "completed"),
        ("paused", "alive in execution 2", "starting"),
        ("open", "alive", "running"),
        ("waiting", "alive", "waiting"),
        ("open", "dead", "interrupted"),
        ("missing", "", "starting"),
        ("missing, old job", "", "interrupted"),
    ],
)
def test_state_follows_log_and_supervisor(log: str, supervisor: str, state: str) -> None:
    run = write_run(4, log if log in ("completed", "paused") else None)  # type: ignore[arg-type]
    if log.startswith("missing"):
        run.events_file.unlink()
    if log == "waiting":
        append_events(run, Waiting(position=1))
    age_s = START_GRACE_S + (10 if log.endswith("old job") else -10)
    os.utime(run.job_file, (time.time() - age_s,) * 2)
    if supervisor:
        register_supervisor(run, alive=supervisor != "dead", execution=2 if supervisor.endswith("2") else 1)
    assert run.state() == state


def test_summary_of_a_failed_run() -> None:
    run = write_run(8, "failed", cause="It is late.", name="mine", resume_from="/last.pt", devices=("cpu", "cpu"))
    start = next(run.events()).time
    summary = run.summary()
    assert summary == RunSummary(
        run_id=run.run_id, folder=str(run.path), name="mine", model="resnet18", strategy="ddp", devices=("cpu", "cpu"),
        dataset="/data/flowers", state="failed", started=start, seconds=summary.seconds, best={"top1": 0.8, "loss": 0.5},
        cause="It is late.", epochs=4, resume_from="/last.pt", has_checkpoint=True,
    )  # fmt: skip
    assert summary.seconds == pytest.approx(1.8)
    assert len(write_run(8, "failed", cause="late " * 1000).summary().cause) == 1000
    write_slurm(run.path, SlurmJob(job_id=7))
    assert run.summary() == msgspec.structs.replace(summary, state="waiting", cause="", slurm="job 7 is pending")


def test_summary_of_a_resumed_run_has_its_job_and_total_time() -> None:
    run = write_run(8, "paused")
    later = list_run_events(job(epochs=9), 8, None, begun=time.time() - 100, from_step=4, execution=2)
    started = next(later)
    started.worked_s = 50.0  # type: ignore[union-attr]
    append_events(run, started, *later)
    run.job_file.write_text(run.job_file.read_text().replace("epochs = 4", "epochs = 9"))
    register_supervisor(run, alive=True, execution=2)
    summary = run.summary()
    assert (summary.state, summary.epochs, summary.epoch, summary.step) == ("running", 9, 4, 8)
    assert summary.seconds == pytest.approx(150, abs=20)
    assert run.worked_s() == pytest.approx(51.4)
    append_events(run, *(LogLine(text="x" * 60_000, time=started.time + 7) for _ in range(80)))
    assert run.worked_s() == pytest.approx(57)


def test_progress_is_that_of_the_last_complete_line() -> None:
    run = write_run(8, None)
    (*_, step) = (event for event in run.events() if isinstance(event, StepMetrics))
    append_events(run, msgspec.structs.replace(step, step=9))
    with run.events_file.open("ab") as stream:
        stream.write(b"torn\n" + ENCODE.encode(msgspec.structs.replace(step, step=10)))
    last = run.last_event()
    assert isinstance(last, StepMetrics)
    assert (last.step, run.summary().step) == (9, 9)


def test_newest_older_checkpoint_replaces_a_missing_one() -> None:
    run = write_run(8)
    assert (run.last_checkpoint(), run.summary().has_checkpoint) == (None, False)
    names = {9: "epoch-1-step-9.pt", 10: "epoch-1-step-10.pt"}
    for name in (*names.values(), "epoch-x-step-11.pt"):
        (run.checkpoints / name).touch()
    older = [(step, run.checkpoints / name) for step, name in names.items()]
    assert list(older_checkpoints(run.checkpoints).items()) == older
    assert run.last_checkpoint() == run.checkpoints / names[10]
    (run.checkpoints / "last.pt").touch()
    assert run.last_checkpoint() == run.checkpoints / "last.pt"


def test_folder_is_a_run_only_after_its_other_files_exist() -> None:
    had_job_file: list[bool] = []
    run = create_run(job(), lambda run: had_job_file.append(run.job_file.exists()))
    assert (had_job_file, run.job()) == ([False], job())
    assert run.summary().started == run.job_file.stat().st_mtime
    for name in ("20260102-000000-a", "20260103-000000-a", "20260101-000000-a"):
        RunFolder(paths.runs_folder() / name).path.mkdir()
    assert [name[:8] for name in run_names() if name.endswith("-a")] == ["20260103", "20260102", "20260101"]


DUMP = """start
Fatal Python error: Aborted

Thread 0x1
code
Fatal Python error: Segmentation fault

Thread 0x2 (most recent call first):
Extension modules: a, b
"""


@pytest.mark.parametrize(
    ("log", "is_older", "end"),
    [
        ("", False, ""),
        ("1\n", True, ""),  # the log of a previous execution
        ("1\n2\n\n3\n4\n5\n6 \n", False, "2 · 3 · 4 · 5 · 6"),
        ("x\nExtension modules: a\n", False, "x"),
        (
            DUMP,
            False,
            "start · Fatal Python error: Aborted · Thread 0x1 · code · Fatal Python error: Segmentation fault",
        ),
    ],
)
def test_interruption_is_explained_by_the_end_of_the_log(log: str, is_older: bool, end: str) -> None:
    run = write_run(8, None)
    file = run.path / "supervisor.log"
    file.write_text(log)
    assert explain_interruption(run).startswith("the run did not start.")
    start = process_start(os.getpid()) - 2
    run.write_supervisor(SupervisorFile(pid=os.getpid(), start_time=start, endpoint="unix:/nowhere"))
    assert run.supervisor_file.stat().st_mode & 0o777 == 0o600
    write_slurm(run.path, SlurmJob(job_id=7, state=""))
    changed = run.supervisor_file.stat().st_mtime_ns + (-1 if is_older else 1) * 10**9
    os.utime(file, ns=(changed, changed))
    text = f"ended early. The end of supervisor.log: {end}" if end else "was probably killed (SIGKILL)"
    assert explain_interruption(run).startswith(f"its supervisor (pid {os.getpid()}) {text}")


def test_only_unreported_signals_are_appended(tmp_path: Path) -> None:
    (tmp_path / "supervisor.log").write_text("last words\n")
    for code in (0, 3, -signal.SIGSEGV, -signal.SIGKILL):
        record_fatal_signal(tmp_path, code)
    before, line = (tmp_path / "supervisor.log").read_text().splitlines()
    assert before == "last words"
    assert line.startswith("The supervisor was killed by SIGKILL")
