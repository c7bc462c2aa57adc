"""The index of runs: quick where nothing has changed, and never believed over a run's own files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.runs.folder import RunFolder, RunSummary, SupervisorFile, UnreadableJob, process_start
from engine.runs.index import RunIndex, find_run
from engine.runs.notes import change_notes
from engine.system import paths
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, a_run, story, write


def read() -> dict[str, RunSummary]:
    return {summary.run_id: summary for summary in RunIndex().summaries()}


def age(runs: Iterable[RunFolder]) -> None:
    """Lets the folders be of yesterday, as those of a list are; what has just changed is not kept."""
    for run in runs:
        os.utime(run.path, (time.time() - 86_400,) * 2)


@pytest.fixture
def logs_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose logs have been read since."""
    read_from: list[str] = []
    summary = RunFolder.summary

    def noted(run: RunFolder) -> RunSummary:
        read_from.append(run.run_id)
        return summary(run)

    monkeypatch.setattr(RunFolder, "summary", noted)
    return read_from


def test_that_the_logs_of_runs_that_have_ended_are_read_once(logs_read: list[str]) -> None:
    runs = [a_run(8, outcome) for outcome in ("completed", "stopped", "failed")]
    age(runs)
    first = read()
    assert sorted(logs_read) == sorted(run.run_id for run in runs)
    logs_read.clear()
    assert read() == first
    assert logs_read == []


def test_that_a_run_whose_files_lead_astray_is_told_of_and_the_others_are_read() -> None:
    good, damaged = a_run(8), a_run(8, None)
    damaged.job_file.write_text(NESTED_TOO_DEEP)
    told: dict[str, Exception] = {}
    found = [run.run_id for run in RunIndex().summaries(lambda run_id, error: told.update({run_id: error}))]
    assert found == [good.run_id]
    assert [(run_id, type(error)) for run_id, error in told.items()] == [(damaged.run_id, UnreadableJob)]
    assert read().keys() == {good.run_id}


def test_that_a_job_that_is_gone_is_not_taken_for_a_damaged_one() -> None:
    run = a_run(8, None)
    run.job_file.unlink()
    with pytest.raises(FileNotFoundError):
        run.summary()


def test_that_a_pid_that_cannot_be_one_is_nobodys() -> None:
    run = a_run(8, None)
    run.supervisor_file.write_text('{"pid":-5,"start_time":1.0,"endpoint":"unix:/nowhere"}')
    assert run.supervisor() is None
    assert run.state() in ("starting", "interrupted")


def test_that_a_log_that_has_grown_is_read_again(logs_read: list[str]) -> None:
    grown, other = a_run(8, "stopped"), a_run(8)
    age([grown, other])
    read()
    logs_read.clear()
    write(grown.events_file, story(grown.job(), 8, "completed"))  # type: ignore[arg-type]
    assert read()[grown.run_id].state == "completed"
    assert logs_read == [grown.run_id]


def test_that_notes_written_since_are_told() -> None:
    run = a_run(8)
    age([run])
    read()
    change_notes(run.path, name="later")
    assert read()[run.run_id].name == "later"
    change_notes(run.path, name="later still")
    assert read()[run.run_id].name == "later still"


def test_that_an_interrupted_run_that_a_supervisor_takes_up_is_running() -> None:
    run = a_run(8, None)
    run.write_supervisor(SupervisorFile(pid=1, start_time=0.0, endpoint="unix:/nowhere"))
    age([run])
    assert read()[run.run_id].state == "interrupted"
    run.write_supervisor(
        SupervisorFile(pid=os.getpid(), start_time=process_start(os.getpid()), endpoint="unix:/nowhere")
    )
    assert read()[run.run_id].state == "running"


def test_that_a_run_that_goes_on_is_never_taken_from_the_index() -> None:
    run = a_run(8, None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        run.write_supervisor(SupervisorFile(pid=process.pid, start_time=started, endpoint="unix:/nowhere"))
        age([run])
        assert read()[run.run_id].state == "running"
        process.communicate(b"\n")
    assert read()[run.run_id].state == "interrupted"


def test_that_what_has_only_just_changed_is_looked_at_again(logs_read: list[str]) -> None:
    a_run(8)
    read()
    logs_read.clear()
    read()
    assert len(logs_read) == 1


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit", "garbage", "empty", "a folder"])
def test_that_a_damaged_index_is_made_anew(logs_read: list[str], damage: str) -> None:
    runs = [a_run(8, name=f"run {n}") for n in range(3)]
    age(runs)
    whole = read()
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
    assert read() == whole
    assert len(logs_read) == 3
    if damage != "a folder":
        logs_read.clear()
        assert read() == whole
        assert logs_read == []


def test_that_the_index_of_a_home_that_was_moved_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(8)
    age([run])
    read()
    shutil.copytree(paths.home(), tmp_path / "elsewhere")
    os.utime(tmp_path / "elsewhere/runs" / run.run_id, (run.path.stat().st_mtime,) * 2)
    monkeypatch.setenv("FOOTPLATE_HOME", str(tmp_path / "elsewhere"))
    assert read()[run.run_id].folder == str(tmp_path / "elsewhere/runs" / run.run_id)


def test_that_runs_that_are_gone_leave_the_index() -> None:
    runs = [a_run(8) for _ in range(3)]
    age(runs)
    assert len(read()) == 3
    shutil.rmtree(runs[0].path)
    assert read().keys() == {run.run_id for run in runs[1:]}


def test_that_the_list_is_read_where_no_index_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(8)
    age([run])

    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.system.paths.tempfile.mkstemp", refuse)
    assert read().keys() == {run.run_id}
    assert not RunIndex.file().exists()


def test_that_what_is_no_run_is_passed_over() -> None:
    good = a_run(8)
    broken = paths.runs_folder() / "20990101-000000-broken-0000"
    broken.mkdir()
    (broken / "job.toml").write_text("this is = not [ toml")
    (paths.runs_folder() / "20990101-000000-empty-0000").mkdir()
    (paths.runs_folder() / "a file").write_text("")
    log_alone = paths.runs_folder() / "20990101-000000-log-0000"
    log_alone.mkdir()
    shutil.copy(good.events_file, log_alone)
    assert list(read()) == [good.run_id]


def test_that_without_a_home_there_are_no_runs() -> None:
    assert read() == {}
    assert find_run("last") is None


def test_that_an_interrupted_run_is_told_with_what_it_was_doing() -> None:
    run = a_run(60, None)
    os.utime(run.job_file, (0, 0))
    summary = read()[run.run_id]
    assert (summary.state, summary.phase, summary.epoch, summary.epochs, summary.step) == (
        "interrupted", "training", 4, 4, 60,
    )  # fmt: skip
