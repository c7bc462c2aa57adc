"""Index of runs. It must read an unchanged run only once, and a changed run again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from engine.contract.catalogue import Measure
from engine.contract.events import LogLine
from engine.runs.folder import RunFolder, RunSummary, SupervisorFile, UnreadableJob, process_start
from engine.runs.index import RunIndex, find_run
from engine.runs.metrics import format_best_metric, format_measure, headline_metric
from engine.runs.notes import change_notes
from engine.system import paths
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, list_run_events, write, write_run


def read() -> dict[str, RunSummary]:
    return {summary.run_id: summary for summary in RunIndex().summaries()}


def test_plan_of_a_run_is_that_of_its_last_execution() -> None:
    run = write_run(8)
    first = run.read_plan()
    assert first is not None
    write(run.events_file, [first, msgspec.structs.replace(first, epochs=first.epochs + 1), LogLine(text="later")])
    last = run.read_plan()
    assert last is not None
    assert last.epochs == first.epochs + 1


def age(runs: Iterable[RunFolder]) -> None:
    """Set the folders' modification times to yesterday, because the index doesn't cache recently changed runs."""
    for run in runs:
        os.utime(run.path, (time.time() - 86_400,) * 2)


@pytest.fixture
def logs_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the ids of runs whose logs are read."""
    read_from: list[str] = []
    summary = RunFolder.summary

    def noted(run: RunFolder) -> RunSummary:
        read_from.append(run.run_id)
        return summary(run)

    monkeypatch.setattr(RunFolder, "summary", noted)
    return read_from


def test_index_reads_ended_runs_once(logs_read: list[str]) -> None:
    runs = [write_run(8, outcome) for outcome in ("completed", "stopped", "failed")]
    age(runs)
    first = read()
    assert sorted(logs_read) == sorted(run.run_id for run in runs)
    logs_read.clear()
    index = RunIndex()
    assert {summary.run_id: summary for summary in index.summaries()} == first
    assert logs_read == []
    added = write_run(8)
    age([added])
    for expected in ([added.run_id], []):
        assert len(list(index.summaries())) == 4
        assert logs_read == expected
        logs_read.clear()


def test_index_reports_damaged_run_and_lists_others() -> None:
    good, damaged = write_run(8), write_run(8, None)
    damaged.job_file.write_text(NESTED_TOO_DEEP)
    failures: dict[str, Exception] = {}
    found = [run.run_id for run in RunIndex().summaries(lambda run_id, error: failures.update({run_id: error}))]
    assert found == [good.run_id]
    assert [(run_id, type(error)) for run_id, error in failures.items()] == [(damaged.run_id, UnreadableJob)]
    assert read().keys() == {good.run_id}


def test_run_is_found_by_parts_of_its_id() -> None:
    run = write_run(8)
    found = [find_run(name) for name in (run.run_id[:12], run.run_id[-4:], run.run_id[-3:])]
    assert [each and each.run_id for each in found] == [run.run_id, run.run_id, None]


def test_last_run_and_names_are_found() -> None:
    runs = sorted((write_run(8, name=name) for name in ("one", "two", "two")), key=lambda run: run.run_id)
    assert [run and run.run_id for run in map(find_run, ("last", "one", "", "tw", runs[1].run_id))] == [
        runs[2].run_id, next(run.run_id for run in runs if run.summary().name == "one"), None, None, runs[1].run_id
    ]  # fmt: skip


def test_headline_metric_is_a_percentage_if_there_is_one() -> None:
    summary = write_run(8).summary()
    for best, expected in (
        ({"loss": 0.5, "top1": 0.9, "miou": 0.5}, ("top1", "Top-1 90.0%")),
        ({"loss": 0.5, "mine": 0.25}, ("loss", "Validation loss 0.5000")),
        ({"mine": 0.25}, ("mine", "mine 0.2500")),
        ({}, (None, "–")),
    ):
        run = msgspec.structs.replace(summary, best=best)
        assert ((headline_metric(run) or (None,))[0], format_best_metric(run)) == expected
    described = [Measure("top1", "Mine", higher_is_better=True)]
    assert format_measure("classification", "top1", 0.5, described=described) == "Mine 0.5000"
    assert format_measure("detection", "top1", 0.5) == "top1 0.5000"


def test_summary_of_run_without_job() -> None:
    run = write_run(8, None)
    run.job_file.unlink()
    with pytest.raises(FileNotFoundError):
        run.summary()
    assert run.state() == "interrupted"


def test_supervisor_file_with_negative_pid_is_ignored() -> None:
    run = write_run(8, None)
    run.supervisor_file.write_text('{"pid":-5,"start_time":1.0,"endpoint":"unix:/nowhere"}')
    assert run.supervisor() is None
    assert run.state() in ("starting", "interrupted")


def test_index_rereads_grown_log(logs_read: list[str]) -> None:
    grown, other = write_run(8, "stopped"), write_run(8)
    age([grown, other])
    read()
    logs_read.clear()
    write(grown.events_file, list_run_events(grown.job(), 8, "completed"))  # type: ignore[arg-type]
    assert read()[grown.run_id].state == "completed"
    assert logs_read == [grown.run_id]


def test_index_shows_changed_notes() -> None:
    run = write_run(8)
    age([run])
    read()
    change_notes(run.path, name="later")
    assert read()[run.run_id].name == "later"
    change_notes(run.path, name="later still")
    assert read()[run.run_id].name == "later still"


def test_index_shows_resumed_run_as_running() -> None:
    run = write_run(8, None)
    run.write_supervisor(SupervisorFile(pid=1, start_time=0.0, endpoint="unix:/nowhere"))
    age([run])
    assert read()[run.run_id].state == "interrupted"
    run.write_supervisor(
        SupervisorFile(pid=os.getpid(), start_time=process_start(os.getpid()), endpoint="unix:/nowhere")
    )
    assert read()[run.run_id].state == "running"


def test_index_does_not_cache_running_run() -> None:
    run = write_run(8, None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        run.write_supervisor(SupervisorFile(pid=process.pid, start_time=started, endpoint="unix:/nowhere"))
        age([run])
        assert read()[run.run_id].state == "running"
        process.communicate(b"\n")
    assert read()[run.run_id].state == "interrupted"


def test_index_rereads_recent_run(logs_read: list[str]) -> None:
    write_run(8)
    read()
    logs_read.clear()
    read()
    assert len(logs_read) == 1


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit", "garbage", "empty", "a folder"])
def test_damaged_index_is_rebuilt(logs_read: list[str], damage: str) -> None:
    runs = [write_run(8, name=f"run {n}") for n in range(3)]
    age(runs)
    complete = read()
    file = RunIndex.file()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "a folder":
        file.unlink()
        file.mkdir()
    else:
        contents = {"cut short": data[:-10], "a flipped bit": data, "garbage": b"garbage", "empty": b""}
        file.write_bytes(contents[damage])
    logs_read.clear()
    assert read() == complete
    assert len(logs_read) == 3
    if damage != "a folder":
        logs_read.clear()
        assert read() == complete
        assert logs_read == []


def test_index_of_moved_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(8)
    age([run])
    read()
    shutil.copytree(paths.home(), tmp_path / "elsewhere")
    os.utime(tmp_path / "elsewhere/runs" / run.run_id, (run.path.stat().st_mtime,) * 2)
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "elsewhere"))
    assert read()[run.run_id].folder == str(tmp_path / "elsewhere/runs" / run.run_id)


def test_deleted_runs_leave_index() -> None:
    runs = [write_run(8) for _ in range(3)]
    age(runs)
    assert len(read()) == 3
    shutil.rmtree(runs[0].path)
    assert read().keys() == {run.run_id for run in runs[1:]}


def test_runs_are_listed_without_writable_index(monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(8)
    age([run])

    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.system.paths.tempfile.mkstemp", refuse)
    assert read().keys() == {run.run_id}
    assert not RunIndex.file().exists()


def test_index_skips_folders_that_are_no_runs() -> None:
    good = write_run(8)
    broken = paths.runs_folder() / "20990101-000000-broken-0000"
    broken.mkdir()
    (broken / "job.toml").write_text("this is = not [ toml")
    (paths.runs_folder() / "20990101-000000-empty-0000").mkdir()
    (paths.runs_folder() / "a file").write_text("")
    log_alone = paths.runs_folder() / "20990101-000000-log-0000"
    log_alone.mkdir()
    shutil.copy(good.events_file, log_alone)
    assert list(read()) == [good.run_id]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_index_skips_runs_that_are_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    def fail(_: RunFolder) -> RunSummary:
        raise error

    write_run(8)
    monkeypatch.setattr(RunFolder, "summary", fail)
    failures: list[str] = []
    assert list(RunIndex().summaries(lambda run_id, _: failures.append(run_id))) == []
    assert failures == []


def test_missing_home_has_no_runs() -> None:
    assert read() == {}
    assert find_run("last") is None


def test_summary_of_interrupted_run_has_progress() -> None:
    run = write_run(60, None)
    os.utime(run.job_file, (0, 0))
    summary = read()[run.run_id]
    assert (summary.state, summary.phase, summary.epoch, summary.epochs, summary.step) == (
        "interrupted", "training", 4, 4, 60,
    )  # fmt: skip
    assert summary.seconds == pytest.approx(7.0), "the time after the last event doesn't count"
    assert (summary.best, summary.cause) == ({"loss": 0.5, "top1": 0.8, "top5": 0.99}, "")
