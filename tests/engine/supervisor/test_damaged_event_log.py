"""The event log in a file that has been damaged, deleted, replaced or cut, and what it says of itself at the end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from engine.contract.events import EVENT, AnyEvent, LogLine, RunFinished
from engine.runs.folder import RunFolder
from engine.supervisor.endpoint import open_endpoint
from engine.supervisor.event_log import INDEX_EVERY, EventLog
from engine.system.decode_errors import NOT_DECODED
from tests.engine.supervisor.test_event_log import all_events, disk_full_at


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log of ten lines."""
    log = EventLog(tmp_path / "events.jsonl")
    for number in range(1, 11):
        log.append(LogLine(text=f"line {number}"))
    log.close()
    return tmp_path / "events.jsonl"


def readable(lines: bytes) -> list[AnyEvent]:
    events = []
    for line in lines.splitlines():
        with suppress(*NOT_DECODED):
            events.append(EVENT.decode(line))
    return events


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        (4, b"\n", b" "),  # two lines became one
        (4, b'"n":5', b'"n":5999'),
        (4, b'"n":5', b'"n":0'),
        (9, b'"n":10', b'"n":1'),
        (9, b'{"type"', b"\0\0\0\0\0\0\0"),
    ],
)
def test_that_numbers_go_on_after_the_highest_that_can_be_believed(
    written: Path, place: int, before: bytes, after: bytes
) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[place] = lines[place].replace(before, after)
    written.write_bytes(b"".join(lines))
    log = EventLog(written)
    assert log.next_n == 11
    log.append(LogLine(text="next"))
    for wanted in (1, 8, 11):
        rest = readable(log.read(log.offset_of(wanted)))
        assert rest[-1].n == 11
        assert all(event.n >= wanted for event in rest if event.n not in (0, 1))
        assert len(rest) >= 12 - wanted - 2
    log.close()


def test_that_places_are_found_beyond_damage_in_a_long_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for _ in range(3 * INDEX_EVERY):
        log.append(LogLine(text="x"))
    log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    first_of_a_block = INDEX_EVERY
    lines[first_of_a_block] = lines[first_of_a_block].replace(b'"n":', b'"n":9999')
    path.write_bytes(b"".join(lines))
    log = EventLog(path)
    for n in (1, INDEX_EVERY, INDEX_EVERY + 2, 2 * INDEX_EVERY + 1, 3 * INDEX_EVERY):
        assert EVENT.decode(log.read(log.offset_of(n)).split(b"\n")[0]).n == n
    log.close()


def test_that_the_end_is_the_last_line_even_where_the_disk_has_room_only_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with disk_full_at(200):
        for number in range(10):
            log.append(LogLine(text=f"line {number}"))
        log.append(RunFinished(outcome="completed"))
    log.close()
    assert isinstance(list(RunFolder(tmp_path).events())[-1], RunFinished)


def test_that_a_deleted_file_is_made_again_and_its_readers_miss_nothing(written: Path) -> None:
    log = EventLog(written)
    written.unlink()
    log.append(LogLine(text="after"))
    assert log.make_again(at_once=True)
    assert not log.make_again(at_once=True)
    log.append(LogLine(text="later"))
    assert [event.n for event in all_events(log)] == list(range(1, 13))
    log.close()
    assert [event.n for event in RunFolder(written.parent).events()] == list(range(1, 13))
    assert written.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_that_a_file_that_cannot_be_made_again_is_told_of_once_and_kept_until_it_can(
    written: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(written)
    written.unlink()
    written.mkdir()
    (written / "in the way").touch()
    for _ in range(3):
        assert not log.make_again(at_once=True)
    told = [event for event in all_events(log) if "can't be created again" in getattr(event, "message", "")]
    assert len(told) == 1
    (written / "in the way").unlink()
    written.rmdir()
    assert log.make_again(at_once=True)
    log.close()
    assert [event.n for event in RunFolder(written.parent).events()] == list(range(1, 12))


def test_that_the_end_of_an_execution_leaves_the_socket_of_the_next_one(tmp_path: Path) -> None:
    first = open_endpoint(tmp_path)
    assert first.stands
    second = open_endpoint(tmp_path)
    assert not first.stands
    first.close()
    assert second.stands
    second.close()
    assert not os.path.lexists(second.text.removeprefix("unix:"))
