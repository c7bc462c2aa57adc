"""Untrusted run folders that contain endless files, or pipes to which nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from engine.advisor.search.trial_handle import TrialLog
from engine.contract.events import LogLine
from engine.runs.export import collect_problem_report
from engine.runs.folder import RunFolder
from engine.runs.index import RunIndex
from engine.runs.interruptions import explain_interruption
from engine.runs.notes import RunNotes, read_notes
from engine.runs.resume import read_resumable
from engine.runs.searches import trial_of
from engine.runs.slurm_job import read_slurm
from engine.supervisor.event_log import DamagedLog, EventLog
from engine.system import files
from engine.system.files import MAX_LINE_BYTES, iterate_complete_lines, open_file, read_end, read_file
from gui.sources.checkpoints import checkpoints_of
from gui.sources.run_intervals import read_executions
from gui.sources.run_reader import LogReader
from tests.gui.sources.written_runs import job, list_run_events, write, write_run

pytestmark = pytest.mark.timeout(60)
"""Timeout for these tests, because a defective reader would block forever."""


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "sparse file": make_sparse,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "endless file": lambda path: path.symlink_to("/proc/self/pagemap"),
    "folder": Path.mkdir,
}
KINDS = pytest.mark.parametrize("kind", SPECIAL)
FILES = (
    "job.toml",
    "events.jsonl",
    "supervisor.json",
    "notes.json",
    "slurm.json",
    "trial.json",
    "supervisor.log",
    "worker-0.log",
)


@pytest.fixture
def run() -> RunFolder:
    return write_run(8, outcome=None)


def replace(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    SPECIAL[kind](path)


@KINDS
@pytest.mark.parametrize("name", FILES)
def test_special_file_in_run_is_not_waited_for(run: RunFolder, name: str, kind: str) -> None:
    replace(run.path / name, kind)

    has_job = name != "job.toml" or kind == "endless file"  # such a file appears to be empty
    assert len(list(RunIndex().summaries())) == has_job
    assert run.state() in ("interrupted", "starting")
    assert explain_interruption(run)
    assert (read_resumable(run).job is not None) == has_job
    assert (read_notes(run.path), read_slurm(run.path), trial_of(run)) == (RunNotes(), None, None)


@KINDS
def test_special_log_has_no_events(run: RunFolder, kind: str) -> None:
    replace(run.events_file, kind)

    assert list(run.events()) == []
    assert (run.read_plan(), run.last_event(), run.worked_s()) == (None, None, 0.0)
    assert not TrialLog(run, (), 1).read()
    reader = LogReader(run.events_file)
    while (events := reader.read()) is not None:
        assert events == []
    reader.close()
    assert checkpoints_of(run) == ()
    assert collect_problem_report("doctor") == {"doctor.txt": "doctor"}
    with suppress(OSError):
        assert read_executions(run) == []


@pytest.mark.parametrize("kind", ["sparse file", "endless file"])
def test_supervisor_refuses_foreign_log(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "events.jsonl"
    SPECIAL[kind](log)
    with pytest.raises(DamagedLog) if kind == "sparse file" else nullcontext():
        EventLog(log).close()
    assert log.is_symlink() or log.stat().st_size == 1 << 40


def test_supervisor_does_not_wait_for_log_that_is_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    log = EventLog(tmp_path / "events.jsonl")
    assert log.fault
    log.close()


@pytest.mark.parametrize("kind", ["FIFO", "endless device", "folder"])
def test_read_file_names_kind_of_special_file(tmp_path: Path, kind: str) -> None:
    replace(tmp_path / "x", kind)
    for read in (read_file, open_file, lambda path: read_end(path, 10)):
        with pytest.raises(OSError, match=r"FIFO|device|directory"):
            read(tmp_path / "x")


def test_read_file_and_read_end_keep_limits(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    assert read_end(path, 2) == b"45"
    assert read_end(path, 9) == b"12345"
    with pytest.raises(OSError, match="5 bytes; the maximum is 4"):
        read_file(path, 4)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"1\n22\ntorn", [b"1\n", b"22\n"]),
        (b"1\n" + b"x" * 11 + b"\n2\n", [b"1\n", b"xxxx", b"xxxx", b"xxx\n", b"2\n"]),
        (b"1\n" + b"x" * 11, [b"1\n"]),
        (b"1\n" + b"x" * 99 + b"\n2\n", [b"1\n"]),
    ],
    ids=["torn", "damaged", "damaged end", "endless"],
)
def test_complete_lines_skip_damage_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, expected: list[bytes]
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 4)
    monkeypatch.setattr(files, "MAX_DAMAGED_BYTES", 16)
    (tmp_path / "log").write_bytes(content)
    with open_file(tmp_path / "log") as stream:
        assert list(iterate_complete_lines(stream)) == expected


def test_executions_are_found_in_long_log() -> None:
    run = write_run(4, outcome="paused")
    before = len(list(run.events()))
    padding = [LogLine(text="x" * 1000)] * (2 * MAX_LINE_BYTES // 1000)
    write(run.events_file, padding, before + 1)
    last = list_run_events(job(), 8, "completed", from_step=4, execution=2)
    write(run.events_file, last, before + len(padding) + 1)
    assert [each.state for each in read_executions(run)] == ["interrupted", None]
