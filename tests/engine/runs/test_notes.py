"""Notes that the user writes about a run."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from engine.runs.index import find_run
from engine.runs.notes import FILE, RunNotes, change_notes, read_notes, tags_of
from tests.gui.sources.written_runs import write_run


def test_notes_leave_log_and_job_unchanged() -> None:
    run = write_run(8, name="first")
    before = (run.job_file.read_bytes(), run.events_file.read_bytes())
    change_notes(run.path, name="  the   best ", tags=("paper",))
    change_notes(run.path, text="0.1 was too much", favorite=True)
    assert read_notes(run.path) == RunNotes(
        name="the best", tags=("paper",), text="0.1 was too much", favorite=True, set_aside=False
    )
    assert (run.job_file.read_bytes(), run.events_file.read_bytes()) == before
    summary = run.summary()
    assert summary is not None
    assert (summary.name, summary.tags, summary.notes, summary.favorite) == (
        "the best", ("paper",), "0.1 was too much", True,
    )  # fmt: skip


def test_name_of_run_defaults_to_jobs_name() -> None:
    run = write_run(8, name="first")
    assert run.summary().name == "first"  # type: ignore[union-attr]
    change_notes(run.path, name="")
    assert run.summary().name == ""  # type: ignore[union-attr]


def test_find_run_by_changed_name() -> None:
    run = write_run(8, name="first")
    change_notes(run.path, name="second")
    found = find_run("second")
    assert found is not None
    assert found.path == run.path
    assert find_run("first") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"tags": 3}', b"\xff\xfe", b"[]"])
def test_damaged_notes_are_ignored_and_overwritten(content: bytes) -> None:
    run = write_run(8)
    (run.path / FILE).write_bytes(content)
    assert read_notes(run.path) == RunNotes()
    assert run.summary() is not None
    assert change_notes(run.path, favorite=True).favorite
    assert read_notes(run.path).favorite


def test_reader_never_sees_partial_notes() -> None:
    folder = write_run(8).path
    long = "word " * 20_000
    change_notes(folder, text=long)
    ended = threading.Event()

    def write() -> None:
        for _ in range(30):
            change_notes(folder, text=long)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        assert read_notes(folder).text == long
    writer.join()


def test_failed_write_keeps_previous_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(8)
    change_notes(run.path, text="before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        change_notes(run.path, text="after")
    assert read_notes(run.path).text == "before"
    assert [path.name for path in run.path.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(FileNotFoundError):
        change_notes(tmp_path / "gone", text="x")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_notes_are_private() -> None:
    run = write_run(8)
    change_notes(run.path, text="private")
    assert stat.S_IMODE((run.path / FILE).stat().st_mode) == 0o600


def test_tags_are_split_at_commas() -> None:
    assert tags_of(" paper , two  words,,paper, v2 ") == ("paper", "two words", "v2")
    assert tags_of("  ") == ()


def test_long_names_and_tags_are_cut() -> None:
    run = write_run(8)
    assert change_notes(run.path, name="n" * 121).name == "n" * 120
    (run.path / FILE).write_text(f'{{"name": "{"n" * 121}", "tags": ["{"t" * 121}"]}}')
    assert read_notes(run.path) == RunNotes(name="n" * 120, tags=("t" * 120,))
