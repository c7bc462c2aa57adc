"""The line in which runs wait for their devices."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.contract.search import Trial
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue, Line, hold, holders, move, release, waiting
from engine.runs.queue.tickets import queue_folder, table
from engine.runs.trials import save_trial
from engine.system import file_locks, paths
from tests.engine.runs.queue.lines import a_line, standing, ticket

ROOT = Path(__file__).parents[4]


def script(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", f"tests.engine.runs.queue.{name}", *words]


def said_by(name: str, *words: str) -> list[int]:
    """The numbers that a script prints at its end."""
    done = subprocess.run(script(name, *words), cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


class Standing:
    """A process that stands in line with `one_in_line`, and what it says."""

    def __init__(self, *words: str) -> None:
        command = script("one_in_line", *words)
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.communicate(timeout=120)


# Who goes when


def test_that_trials_of_one_search_are_on_the_cpu_together_and_never_on_one_gpu(tmp_path: Path) -> None:
    def trial_line(name: str, search: str, *devices: str) -> Line:
        run = RunFolder(tmp_path / name)
        run.path.mkdir()
        save_trial(run, Trial(search=search, number=0, params={}, seed=0))
        return Line(run, Job(devices=devices))

    lines = [
        trial_line("a", "one", "cpu"),
        trial_line("b", "one", "cpu"),
        trial_line("c", "other", "cpu"),
        a_line("d", "cpu"),
        trial_line("e", "one", "GPU-1"),
        trial_line("f", "one", "GPU-1"),
    ]
    for line in lines:
        line.step()
    assert [line.turn for line in lines] == [True, True, False, False, True, False]
    assert standing() == {"c": ("a", "b"), "d": ("a", "b", "c"), "f": ("e",)}
    for line in lines:
        line.close()


def test_that_a_run_whose_devices_are_free_has_its_turn_at_its_first_step() -> None:
    line = a_line("one", "x", "x", "y")
    assert not line.turn
    assert line.step() is None
    assert line.turn
    assert holders() == {"x": ("one",), "y": ("one",)}
    assert waiting() == []
    line.close()
    assert holders() == {}


def test_that_a_second_run_waits_until_the_first_has_given_its_device_back() -> None:
    first, second = a_line("first"), a_line("second")
    first.step()
    told = second.step()
    assert told == Waiting(position=1, behind=("first",))
    assert second.step() is None, "nothing has changed"
    assert not second.turn
    first.close()
    assert second.step() is None
    assert second.turn
    assert holders() == {"x": ("second",)}
    second.close()


def test_that_runs_for_other_devices_do_not_wait_for_each_other() -> None:
    lines = [a_line("one", "x"), a_line("two", "y"), a_line("three", "cpu")]
    for line in lines:
        line.step()
    assert all(line.turn for line in lines)
    for line in lines:
        line.close()


def test_that_a_run_that_waits_for_one_of_its_devices_keeps_its_place_for_the_other() -> None:
    first, both, behind = a_line("first", "1"), a_line("both", "0", "1"), a_line("behind", "0")
    first.step()
    both.step()
    assert behind.step() == Waiting(position=2, behind=("both",))
    first.close()
    behind.step()
    assert not behind.turn
    both.step()
    assert both.turn
    assert behind.step() == Waiting(position=1, behind=("both",))
    both.close()
    behind.step()
    assert behind.turn
    behind.close()


def test_that_a_run_that_starts_at_once_waits_for_nobody_and_others_wait_for_it() -> None:
    first, beside, after = a_line("first"), a_line("beside", start="at_once"), a_line("after")
    first.step()
    assert beside.step() is None
    assert beside.turn
    assert holders() == {"x": ("first", "beside")}
    assert after.step() == Waiting(position=1, behind=("first", "beside"))
    first.close()
    assert after.step() == Waiting(position=1, behind=("beside",))
    beside.close()
    after.step()
    assert after.turn
    after.close()


def test_that_the_order_is_changed_among_those_that_wait() -> None:
    lines = {name: a_line(name) for name in ("first", "a", "b", "c")}
    for line in lines.values():
        line.step()
    assert list(standing()) == ["a", "b", "c"]
    assert move("c", -1)
    assert list(standing()) == ["a", "c", "b"]
    assert move("a", 10)
    assert list(standing()) == ["c", "b", "a"]
    assert move("b", -10)
    assert standing() == {"b": ("first",), "c": ("first", "b"), "a": ("first", "b", "c")}
    assert lines["b"].step() == Waiting(position=1, behind=("first",))
    assert not move("first", -1), "it does not wait"
    assert not move("nobody", -1)
    lines["first"].close()
    for name in ("a", "b", "c"):
        lines[name].step()
    assert [name for name, line in lines.items() if line.turn and name != "first"] == ["b"]
    for line in lines.values():
        line.close()


def test_that_a_held_run_is_passed_over_and_keeps_its_place() -> None:
    first, held, after = a_line("first"), a_line("held"), a_line("after")
    for line in (first, held, after):
        line.step()
    assert hold("held")
    assert held.step() == Waiting(position=1, behind=("first",), held=True)
    assert after.step() == Waiting(position=2, behind=("first",))
    first.close()
    held.step()
    assert not held.turn
    after.step()
    assert after.turn
    assert (ticket("held").position, ticket("held").held) == (1, True)
    assert release("held")
    assert held.step() == Waiting(position=1, behind=("after",))
    after.close()
    held.step()
    assert held.turn
    assert not hold("held"), "it has its devices"
    assert not release("nobody")
    held.close()


def test_that_a_ticket_tells_who_stands_there() -> None:
    before = time.time()
    lines = [a_line("first", "cpu", "cpu"), a_line("second", "cpu")]
    for line in lines:
        line.step()
    (found,) = waiting()
    assert (found.run_id, found.folder, found.devices, found.position) == ("second", "/runs/second", ("cpu",), 1)
    assert found.pid == os.getpid()
    assert before <= found.since <= time.time()
    for line in lines:
        line.close()


# Who ends, however


@pytest.mark.parametrize("state", ["turn", "waiting"])
def test_that_a_killed_process_leaves_neither_place_nor_device(state: str) -> None:
    keeper = a_line("keeper", "y")
    keeper.step()
    other = Standing("other", "x" if state == "turn" else "y")
    assert other.says() == state
    behind = a_line("behind", "x", "y")
    assert behind.step() == Waiting(position=1 if state == "turn" else 2, behind=("keeper", "other"))
    other.kill()
    assert behind.step() == Waiting(position=1, behind=("keeper",))
    keeper.close()
    behind.step()
    assert behind.turn
    behind.close()


def test_that_a_worker_that_outlives_its_supervisor_has_no_part_in_its_devices() -> None:
    other = Standing("other", "x", "with_worker")
    assert other.says() == "turn"
    worker = int(other.says())
    assert holders() == {"x": ("other",)}
    other.process.kill()
    other.process.wait()
    os.kill(worker, 0)  # it lives
    assert holders() == {}
    os.kill(worker, signal.SIGKILL)
    other.end()


def test_that_whoever_is_killed_anywhere_in_the_queues_code_leaves_it_as_if_it_had_never_been_there() -> None:
    (killed,) = said_by("killed_in_line", "line", "37")
    assert killed > 20


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.timeout(900)
def test_that_whoever_is_killed_at_any_instruction_of_the_queues_code_leaves_nothing() -> None:
    (killed,) = said_by("killed_in_line", "opcode", "3")
    assert killed > 1000


def test_that_processes_that_race_and_are_killed_never_have_one_device_together() -> None:
    turns, killed = said_by("racing_in_line", "5", "6", "5")
    assert turns >= 30
    assert killed == 5


@pytest.mark.long
@pytest.mark.faults
def test_that_many_processes_that_race_and_are_killed_never_have_one_device_together() -> None:
    turns, killed = said_by("racing_in_line", "12", "100", "100")
    assert turns >= 1200
    assert killed == 100


# What befalls the folder


def test_that_the_hold_is_made_anew_once_the_user_has_logged_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, second, third = a_line("holder"), a_line("second"), a_line("third")
    for line in (holder, second, third):
        line.step()
    before = queue_folder()
    shutil.rmtree(before)
    elsewhere = tmp_path / "run"
    elsewhere.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(elsewhere))
    for line in (holder, second, third):
        line.step()
    assert queue_folder() != before
    assert holders() == {"x": ("holder",)}
    assert standing() == {"second": ("holder",), "third": ("holder", "second")}
    for line in (holder, second, third):
        line.close()
    assert holders() == {}


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b'{"waiting": 3}', b"\0" * 200])
def test_that_nobody_starts_before_the_others_where_the_order_is_lost(content: bytes | None) -> None:
    lines = [a_line(name) for name in ("first", "second", "third")]
    for line in lines:
        line.step()
    order = queue_folder() / "order.json"
    order.unlink() if content is None else order.write_bytes(content)
    lines[0].close()
    lines[1].step()
    assert not lines[1].turn, "the third may have the device, for all that can be known"
    lines[2].step()
    assert list(standing()) == ["second", "third"]
    lines[1].step()
    lines[2].step()
    assert (lines[1].turn, lines[2].turn) == (True, False)
    for line in lines:
        line.close()


def test_that_what_is_no_ticket_counts_for_nothing_and_is_swept(tmp_path: Path) -> None:
    line = a_line("one")
    line.step()
    folder = queue_folder()
    (folder / "torn.ticket").write_bytes(b'{"run_id": "tor')
    (folder / "empty.ticket").touch()
    left = Path(line._path).read_bytes()
    (folder / "left.ticket").write_bytes(left)  # whole, and nobody's
    (tmp_path / "elsewhere").write_bytes(left)
    (folder / "link.ticket").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe.ticket")
    (folder / "folder.ticket").mkdir()
    assert holders() == {"x": ("one",)}
    assert {path.name for path in folder.glob("*.ticket")} == {line._path.name, "folder.ticket"}
    assert (tmp_path / "elsewhere").exists()
    line.close()


def test_that_a_torn_ticket_of_a_living_run_is_made_anew_by_it() -> None:
    line = a_line("one")
    line.step()
    line._path.write_bytes(b"{")
    assert holders() == {}
    line.step()
    assert holders() == {"x": ("one",)}
    line.close()


def test_that_the_queue_is_for_its_user_alone() -> None:
    line = a_line("one")
    line.step()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in queue_folder().iterdir()}
    assert stat.S_IMODE(queue_folder().stat().st_mode) == 0o700
    assert (modes["mutex"], modes[line._path.name]) == (0o600, 0o600)
    line.close()


def test_that_a_folder_that_cannot_be_is_told_with_its_place() -> None:
    (paths.runtime_folder() / "queue").write_text("a file")
    with pytest.raises(CannotQueue, match=r"File exists \(.*/queue\)"):
        a_line("one").step()


def test_that_a_process_that_keeps_the_line_is_not_waited_for_without_end() -> None:
    one = a_line("one")
    with file_locks.locked(queue_folder() / "mutex", 1.0):
        assert one.step() is None
        assert not one.turn
        with pytest.raises(CannotQueue, match="Try again"), table(0.05):
            pass
    one.step()
    assert one.turn
    one.close()


# What the machine lacks


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


def test_that_a_process_without_a_descriptor_left_takes_nobodys_place(capsys: pytest.CaptureFixture[str]) -> None:
    line = a_line("one")
    line.step()
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)  # the lowest number that is free: the mutex's then, and there is none for a ticket
    with limited(resource.RLIMIT_NOFILE, spare + 1), pytest.raises(CannotQueue, match="Too many open files"):
        waiting()
    assert holders() == {"x": ("one",)}
    line.close()


def test_that_a_full_disk_is_told_and_leaves_no_half_ticket(capsys: pytest.CaptureFixture[str]) -> None:
    line, at_once = a_line("one"), a_line("two", start="at_once")
    with limited(resource.RLIMIT_FSIZE, 10):
        with pytest.raises(CannotQueue, match="File too large"):
            line.step()
        at_once.step()
    assert not line.turn
    assert at_once.turn
    assert list(queue_folder().glob("*.ticket")) == []
    at_once.step()
    assert holders() == {"x": ("two",)}
    line.close()
    at_once.close()


def test_that_a_file_system_without_locks_is_told_and_does_not_keep_a_run_that_starts_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CannotQueue, match=r"without file locks.*XDG_RUNTIME_DIR.*at once"):
        a_line("one").step()
    with pytest.raises(CannotQueue, match="without file locks"):
        waiting()
    beside = a_line("two", start="at_once")
    assert beside.step() is None
    assert beside.turn
    assert "Other runs do not know" in beside.warning


def test_that_what_was_closed_stands_no_more() -> None:
    line = a_line("one")
    line.step()
    line.close()
    assert line.step() is None
    assert holders() == {}
    line.close()
