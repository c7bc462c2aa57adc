"""What the user says of a run."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from engine.runs.index import find_run
from engine.runs.notes import FILE, RunNotes, change_notes, read_notes, tags_of
from tests.gui.sources.written_runs import a_run


def test_that_notes_are_kept_beside_the_log_and_the_job_which_stay_as_they_are() -> None:
    run = a_run(8, name="first")
    before = (run.job_file.read_bytes(), run.events_file.read_bytes())
    change_notes(run.path, name="  the   best ", tags=("paper",))
    change_notes(run.path, text="0.1 was too much", favourite=True)
    assert read_notes(run.path) == RunNotes(
        name="the best", tags=("paper",), text="0.1 was too much", favourite=True, set_aside=False
    )
    assert (run.job_file.read_bytes(), run.events_file.read_bytes()) == before
    summary = run.summary()
    assert summary is not None
    assert (summary.name, summary.tags, summary.notes, summary.favourite) == (
        "the best", ("paper",), "0.1 was too much", True,
    )  # fmt: skip


def test_that_a_run_without_notes_keeps_its_jobs_name_and_one_renamed_to_nothing_has_none() -> None:
    run = a_run(8, name="first")
    assert run.summary().name == "first"  # type: ignore[union-attr]
    change_notes(run.path, name="")
    assert run.summary().name == ""  # type: ignore[union-attr]


def test_that_a_run_is_found_by_the_name_it_was_given_later() -> None:
    run = a_run(8, name="first")
    change_notes(run.path, name="second")
    found = find_run("second")
    assert found is not None
    assert found.path == run.path
    assert find_run("first") is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"tags": 3}', b"\xff\xfe", b"[]"])
def test_that_damaged_notes_count_as_none_and_can_be_written_over(content: bytes) -> None:
    run = a_run(8)
    (run.path / FILE).write_bytes(content)
    assert read_notes(run.path) == RunNotes()
    assert run.summary() is not None
    assert change_notes(run.path, favourite=True).favourite
    assert read_notes(run.path).favourite


def test_that_a_reader_never_sees_half_of_the_notes() -> None:
    folder = a_run(8).path
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


def test_that_notes_that_cannot_be_written_leave_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(8)
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
def test_that_notes_are_for_their_user_alone() -> None:
    run = a_run(8)
    change_notes(run.path, text="private")
    assert stat.S_IMODE((run.path / FILE).stat().st_mode) == 0o600


def test_that_tags_stand_between_commas_each_once() -> None:
    assert tags_of(" paper , two  words,,paper, v2 ") == ("paper", "two words", "v2")
    assert tags_of("  ") == ()
