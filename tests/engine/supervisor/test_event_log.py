"""Event log: numbering, full disks, damaged files, and reading from file and memory."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.events import EVENT, AnyEvent, EventsLost, LogLine, RunFinished, Warned
from engine.runs.folder import RunFolder
from engine.supervisor import event_log as module
from engine.supervisor.event_log import INDEX_EVERY, RECENT_BYTES, RETRY_S, EventLog
from engine.system.decode_errors import NOT_DECODED
from tests.engine.supervisor.tiny_worker import step_metrics
from tests.support.clock import Clock
from tests.support.limits import limit_file_size
from tests.support.syncing import record_syncs


def all_events(log: EventLog) -> list[AnyEvent]:
    offset, events = 0, []
    while lines := log.read(offset):
        offset += len(lines)
        events += [EVENT.decode(line) for line in lines.splitlines()]
    return events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def write_log(path: Path, count: int, length: int = 0) -> None:
    log = EventLog(path)
    for number in range(1, count + 1):
        log.append(LogLine(text=f"line {number}".ljust(length)))
    log.close()


def test_full_disk_keeps_events_in_memory(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECENT_BYTES", 100)
    log = EventLog(path)
    with limit_file_size(1000):
        for number in range(100):
            assert log.append(LogLine(text=f"line {number}"))
        assert log.fault is not None
        assert path.stat().st_size == 1000
        log.retry(at_once=True)
        events = all_events(log)
        assert [event.n for event in events] == list(range(1, 102))  # includes the warning
        assert [event.code for event in events if isinstance(event, Warned)] == ["log_unwritable"]
    log.close()
    events = list(RunFolder(path.parent).events())
    assert [event.n for event in events] == list(range(1, 103))
    assert [event.text for event in events if isinstance(event, LogLine)] == [f"line {n}" for n in range(100)]
    assert isinstance(events[-1], Warned)
    assert events[-1].code == "log_delayed"


def test_full_disk_drops_only_metrics_beyond_the_memory_limit(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog(path, memory_limit_bytes=5000)
    with limit_file_size(0):
        appended = sum(log.append(step_metrics(step)) for step in range(1, 201))
        assert appended < 200
        assert log.append(LogLine(text="never dropped"))
    log.close()
    events = list(RunFolder(path.parent).events())
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    assert any(isinstance(event, LogLine) for event in events)
    assert [event.count for event in events if isinstance(event, EventsLost)] == [200 - appended]


def test_full_disk_is_retried(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    log = EventLog(path, memory_limit_bytes=0)
    for _ in range(2):
        with limit_file_size(0):
            log.append(LogLine(text="one"))
            log.append(step_metrics(1))
            clock.now += 2 * RETRY_S
            log.retry()
        clock.now += RETRY_S / 2
        log.retry()
        assert log.fault is not None, "it is too early"
        clock.now += RETRY_S
        log.retry()
        assert log.fault is None
    events = list(RunFolder(path.parent).events())
    assert [event.count for event in events if isinstance(event, EventsLost)] == [1, 1]
    delays = [event.message for event in events if isinstance(event, Warned) and event.code == "log_delayed"]
    assert [re.findall(r"\d+", message) for message in delays] == [["4", "2"]] * 2, (
        "seconds since the first failure and number of events"
    )
    log.close()


def test_full_disk_keeps_run_finished_last(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for is_full_before, codes in ((True, ["log_unwritable", "log_delayed"]), (False, [])):
        path.unlink(missing_ok=True)
        log = EventLog(path)
        if is_full_before:
            with limit_file_size(200):
                for number in range(10):
                    log.append(LogLine(text=f"line {number}"))
            log.append(RunFinished(outcome="completed"))
        else:
            with limit_file_size(0):
                log.append(RunFinished(outcome="completed"))
        log.close()
        events = list(RunFolder(path.parent).events())
        assert isinstance(events[-1], RunFinished)
        assert [event.code for event in events if isinstance(event, Warned)] == codes


def test_copied_lines_keep_their_numbers(path: Path) -> None:
    write_log(path, 5)
    log = EventLog(path.with_name("copy.jsonl"))
    log.copy(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    log.append(LogLine(text="another"))
    assert [event.n for event in all_events(log)] == [3, 4, 5, 6]
    assert [EVENT.decode(log.read(log.offset_of(n)).split(b"\n")[0]).n for n in (3, 5)] == [3, 5]
    log.close()


def test_second_execution_continues_after_a_torn_line(path: Path) -> None:
    write_log(path, 1)
    with path.open("ab") as stream:
        stream.write(b'{"type":"log","n":2,"ti')
    log = EventLog(path)
    log.append(LogLine(text="two"))
    log.close()
    first, second = RunFolder(path.parent).events()
    assert (first.n, second.n) == (1, 2)
    assert first.time <= second.time == pytest.approx(time.time(), abs=60)


@settings(max_examples=20)
@given(st.data())
def test_offset_of_finds_every_number(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3 * INDEX_EVERY))
    log = EventLog(tmp_path_factory.mktemp("log") / "events.jsonl")
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


def test_read_joins_file_and_memory(path: Path) -> None:
    log = EventLog(path)
    while log.end < 4 * RECENT_BYTES:
        log.append(LogLine(text="x" * 5000))
    assert [event.n for event in all_events(log)] == list(range(1, log.next_n))
    assert 0 < log.recent_offset < log.end
    offset = 0
    for line in path.read_bytes().splitlines(keepends=True):
        assert log.read(offset, 1).startswith(line)
        offset += len(line)
    log.close()


@pytest.mark.skipif(sys.platform != "linux", reason="files are named by /proc")
def test_close_syncs_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(path)
    log.append(LogLine(text="last"))
    with record_syncs(monkeypatch) as names:
        log.close()
    assert names == [(str(path), [])]


# Damaged files


def readable(lines: bytes) -> list[AnyEvent]:
    events = []
    for line in lines.splitlines():
        with suppress(*NOT_DECODED):
            events.append(EVENT.decode(line))
    return events


@pytest.mark.parametrize(
    ("index", "before", "after"),
    [
        (4, b"\n", b" "),  # two lines became one
        (4, b'"n":5', b'"n":5999'),
        (4, b'"n":5', b'"n":0'),
        (9, b'"n":10', b'"n":1'),
        (9, b'{"type"', b"\0\0\0\0\0\0\0"),
    ],
)
def test_numbers_continue_after_a_damaged_line(path: Path, index: int, before: bytes, after: bytes) -> None:
    write_log(path, 10)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[index] = lines[index].replace(before, after)
    path.write_bytes(b"".join(lines))
    log = EventLog(path)
    assert log.next_n == 11
    log.append(LogLine(text="next"))
    for first in (1, 8, 11):
        rest = readable(log.read(log.offset_of(first)))
        assert rest[-1].n == 11
        assert all(event.n >= first for event in rest if event.n not in (0, 1))
        assert len(rest) >= 12 - first - 2
    log.close()


@pytest.mark.parametrize("number", [2 * INDEX_EVERY + 1, 99_999], ids=["next indexed number", "higher number"])
def test_offset_of_passes_damage_in_a_long_log(path: Path, number: int) -> None:
    write_log(path, 3 * INDEX_EVERY, length=1000)  # lines between two entries of the index need several reads
    lines = path.read_bytes().splitlines(keepends=True)
    lines[INDEX_EVERY] = lines[INDEX_EVERY].replace(b'"n":%d,' % (INDEX_EVERY + 1), b'"n":%d,' % number)
    path.write_bytes(b"".join(lines))
    log = EventLog(path)
    for n in (1, INDEX_EVERY, INDEX_EVERY + 2, 2 * INDEX_EVERY, 2 * INDEX_EVERY + 1, 3 * INDEX_EVERY):
        assert EVENT.decode(log.read(log.offset_of(n)).split(b"\n")[0]).n == n
    log.close()


def _replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


@pytest.mark.parametrize(
    ("damage", "code"),
    [(Path.unlink, "log_deleted"), (_replace, "log_changed"), (lambda path: os.truncate(path, 50), "log_changed")],
)
def test_check_file_reports_damage_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], code: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    write_log(path, 3)
    log = EventLog(path)
    assert log.check_file() is None
    damage(path)
    assert log.check_file() is None, "it is too early"
    clock.now += RETRY_S
    warning = log.check_file()
    assert warning is not None
    assert (warning.code, warning.message) == (code, log.damage)
    log.append(warning)
    log.append(RunFinished(outcome="stopped"))
    clock.now += 2 * RETRY_S
    assert log.check_file() is None
    assert [event.n for event in readable(log.read(log.recent_offset))] == [4, 5], "clients get the end from memory"
    log.close()
