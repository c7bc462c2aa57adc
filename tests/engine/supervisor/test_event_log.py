"""The event log: numbering, disks that fail, and reading as one stream what file and memory hold."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.events import EVENT, AnyEvent, EventsLost, LogLine, Warned
from engine.runs.folder import RunFolder
from engine.supervisor import event_log as module
from engine.supervisor.event_log import INDEX_EVERY, EventLog
from tests.engine.supervisor.tiny_worker import step_metrics
from tests.support.syncing import synced


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes meanwhile: writes then fall short, and fail.

    The test has to use `capsys`, since pytest's usual capture of what is printed is a file as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def all_events(log: EventLog) -> list[AnyEvent]:
    offset, events = 0, []
    while lines := log.read(offset):
        offset += len(lines)
        events += [EVENT.decode(line) for line in lines.splitlines()]
    return events


def test_that_a_full_disk_keeps_events_in_memory_and_loses_none_when_there_is_room_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with disk_full_at(1000):
        for number in range(100):
            assert log.append(LogLine(text=f"line {number}"))
        assert log.fault is not None
        assert (tmp_path / "events.jsonl").stat().st_size == 1000
        seen = all_events(log)
        assert [event.n for event in seen] == list(range(1, 102))  # with the warning that the disk is full
        assert [event.code for event in seen if isinstance(event, Warned)] == ["log_unwritable"]
    log.close()
    events = list(RunFolder(tmp_path).events())
    assert [event.n for event in events] == list(range(1, 103))
    assert [event.text for event in events if isinstance(event, LogLine)] == [f"line {n}" for n in range(100)]
    assert isinstance(events[-1], Warned)
    assert events[-1].code == "log_delayed"


def test_that_memory_is_bounded_by_dropping_metrics_alone_and_the_loss_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "events.jsonl", memory_limit_bytes=5000)
    with disk_full_at(0):
        kept = sum(log.append(step_metrics(step)) for step in range(1, 201))
        assert kept < 200
        assert log.append(LogLine(text="never dropped"))
    log.close()
    events = list(RunFolder(tmp_path).events())
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    assert any(isinstance(event, LogLine) for event in events)
    lost = [event for event in events if isinstance(event, EventsLost)]
    assert [event.count for event in lost] == [200 - kept]


def test_that_writing_is_tried_again_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    log = EventLog(tmp_path / "events.jsonl")
    with disk_full_at(0):
        log.append(LogLine(text="one"))
    log.retry()
    assert log.fault is None
    assert [event.n for event in RunFolder(tmp_path).events()] == [1, 2, 3]
    log.close()


def test_that_a_second_execution_goes_on_numbering_after_a_torn_line(tmp_path: Path) -> None:
    first = EventLog(tmp_path / "events.jsonl")
    first.append(LogLine(text="one"))
    first.close()
    with (tmp_path / "events.jsonl").open("ab") as stream:
        stream.write(b'{"type":"log","n":2,"ti')
    second = EventLog(tmp_path / "events.jsonl")
    second.append(LogLine(text="two"))
    second.close()
    assert [event.n for event in RunFolder(tmp_path).events()] == [1, 2]


@settings(max_examples=20)
@given(st.data())
def test_that_the_place_of_every_number_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("log")
    count = data.draw(st.integers(1, 3 * INDEX_EVERY))
    log = EventLog(folder / "events.jsonl")
    for number in range(1, count + 1):
        log.append(LogLine(text="x" * (number % 7)))
    n = data.draw(st.integers(-2, count + 3))
    offset = log.offset_of(n)
    rest = log.read(offset)
    if n > count:
        assert offset == log.end
    else:
        assert EVENT.decode(rest.split(b"\n")[0]).n == max(1, n)
    log.close()


@pytest.mark.skipif(sys.platform != "linux", reason="files are named by /proc")
def test_that_the_whole_log_is_brought_to_the_disk_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append(LogLine(text="the last word"))
    with synced(monkeypatch) as names:
        log.close()
    assert names == [(str(tmp_path / "events.jsonl"), [])]
