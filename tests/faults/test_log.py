"""Damaged logs of real runs. They must be displayed as far as possible, and resumed runs must extend them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, Planned, RunFinished, StepMetrics
from engine.runs.index import RunIndex
from engine.system.files import MAX_LINE_BYTES
from gui.sources.run_session import RunSession
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.damage import Gate, open_listener
from tests.faults.real_runs import RealRun, assert_same_checkpoints
from tests.support.cases import mark_long_cases

pytestmark = pytest.mark.faults

Lines = list[bytes]


def find_step_line(lines: Lines) -> int:
    """Return the index of a line with a step event, the first in the second half of the log."""
    return next(place for place in range(len(lines) // 2, len(lines)) if lines[place].startswith(b'{"type":"step"'))


def cut_last_line(lines: Lines) -> None:
    """Cut the last line in half, as a power failure does."""
    lines[-1] = lines[-1][: len(lines[-1]) // 2]


def write_invalid_utf8(lines: Lines) -> None:
    place = next(place for place, line in enumerate(lines) if b'"validating"' in line)
    lines[place] = lines[place].replace(b"validating", b"valid\xff\xfeting")


def write_nulls(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = bytes(len(lines[place]) - 1) + b"\n"


def append_nulls(lines: Lines) -> None:
    lines.append(bytes(4096))


def insert_long_line(lines: Lines) -> None:
    """Insert a line that is longer than the maximum (`MAX_LINE_BYTES`) into the second half of the log."""
    lines.insert(find_step_line(lines), b"x" * (5 * MAX_LINE_BYTES // 2) + b"\n")


def remove_newline(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = lines[place][:-1] + b" "


def raise_number(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = lines[place].replace(b'"n":', b'"n":9999', 1)


def lower_number(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = b'{"type":"step","n":1' + lines[place][lines[place].index(b',"time"') :]


def write_huge_number(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = lines[place].replace(b'"n":', b'"n":' + b"9" * 40, 1)


def insert_carriage_returns(lines: Lines) -> None:
    place = find_step_line(lines)
    lines[place] = lines[place].replace(b",", b"\r")


DAMAGES = [
    cut_last_line, write_invalid_utf8, write_nulls, append_nulls, insert_long_line, remove_newline, raise_number, lower_number,
    write_huge_number, insert_carriage_returns,
]  # fmt: skip


def damage_log(run: RealRun, damage: Callable[[Lines], None]) -> Lines:
    """Damage the log of a run and return its original lines."""
    before = run.folder.events_file.read_bytes().splitlines(keepends=True)
    lines = list(before)
    damage(lines)
    run.folder.events_file.write_bytes(b"".join(lines))
    assert lines != before
    return before


def steps(events: list[AnyEvent]) -> set[int]:
    return {event.step for event in events if isinstance(event, StepMetrics)}


@pytest.fixture
def completed(job: Make, start_run: StartRun, stepwise: dict[str, str]) -> RealRun:
    return start_run(job(epochs=2, schedule="none", **stepwise)).completed()


@pytest.mark.parametrize("damage", mark_long_cases(DAMAGES, everyday=[write_invalid_utf8]))
def test_damaged_log_is_readable_and_continued(
    completed: RealRun, damage: Callable[[Lines], None], gate: Gate, qtbot: QtBot, uninterrupted: Uninterrupted
) -> None:
    events = list(completed.logged)
    damage_log(completed, damage)
    # Without its end, the log doesn't show that the run has completed.
    state = "interrupted" if damage is cut_last_line else "completed"
    (summary,) = RunIndex().summaries()
    assert summary.state == completed.folder.state() == state
    read = list(completed.folder.events())
    assert len(read) >= len(events) - 2
    assert len(steps(events) - steps(read)) <= 2
    store = open_session(completed, qtbot)
    assert len(steps(events)) - len(store.data.steps.step) <= 2
    assert (store.data.finished is None) == (damage is cut_last_line)
    store.close()
    # The lines of the next execution follow, and a client that reads from the start receives all.
    gate.permit_steps(0)
    completed.resume(**({} if damage is cut_last_line else {"epochs": 3}))
    with open_listener(completed) as client:
        gate.permit_all_steps()
        finished = client.wait_for(RunFinished, lambda event: event.execution == 2)
        received = [event.n for event in client.messages if event.time > events[-1].time]
    completed.wait_for_processes_to_end()
    assert finished.outcome == completed.folder.state() == "completed"
    assert received == sorted(set(received))
    assert len(steps(events) - steps(client.messages)) <= 2
    again = open_session(completed, qtbot)
    assert again.data.finished is not None
    assert again.data.finished.execution == 2
    again.close()
    assert_same_checkpoints(completed.final_checkpoints, uninterrupted(completed.job))


def open_session(run: RealRun, qtbot: QtBot) -> RunSession:
    """Open an ended run in a session, as the window does, and return the session when it has read the entire log."""
    store = RunSession()
    with qtbot.waitSignal(store.changed, check_params_cb=lambda: not store.loading):
        store.open(run.folder)
    return store


def read_attach_output(run: RealRun) -> str:
    """Return the output of `footplate attach` for a run that has ended."""
    command = [sys.executable, str(ROOT / "footplate.py"), "attach", run.folder.run_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"})
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "damage", mark_long_cases([write_invalid_utf8, insert_long_line, raise_number], everyday=[write_invalid_utf8])
)
def test_attach_shows_the_end_of_a_damaged_log(completed: RealRun, damage: Callable[[Lines], None]) -> None:
    complete_text = read_attach_output(completed)
    damage_log(completed, damage)
    text = read_attach_output(completed)
    assert text.splitlines()[-1] == complete_text.splitlines()[-1]
    assert len(text.splitlines()) >= len(complete_text.splitlines()) - 1


def test_log_of_null_bytes_does_not_block_the_window(completed: RealRun, qtbot: QtBot, tmp_path: Path) -> None:
    """Append 100 MiB of null bytes without a newline, which a file system may leave behind after losing data."""
    with completed.folder.events_file.open("r+b") as stream:
        stream.truncate(stream.seek(0, os.SEEK_END) + (100 << 20))
    started = time.thread_time()  # CPU time of the window's thread only
    store = open_session(completed, qtbot)
    assert time.thread_time() - started < 5
    assert store.data.finished is not None
    store.close()


def many(lines: Lines) -> None:
    for damage in (insert_long_line, raise_number):
        damage(lines)
    place = next(place for place, line in enumerate(lines) if b'"preparing"' in line)
    lines[place] = lines[place].replace(b"preparing", b"prep\xff\xfering")


def test_followers_of_a_damaged_log_get_new_events(
    job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str], qtbot: QtBot
) -> None:
    gate.permit_steps(4)
    run = start_run(job(**stepwise))
    gate.permit_steps(4, run)
    run.kill_all()
    run.wait_for_processes_to_end()
    damage_log(run, many)
    run.resume()
    with open_listener(run) as client:
        client.wait_for(Planned, lambda event: event.from_step == 4)
        store = open_session(run, qtbot)
        with qtbot.waitSignal(store.finished) as ended:
            gate.permit_all_steps()
        assert client.wait_for(RunFinished).outcome == "completed"
    assert ended.args == ["completed"]
    assert store.data.finished is not None
    assert store.data.steps.step.last == 18
    store.close()
    run.wait_for_processes_to_end()
