"""Queue of runs that wait for devices."""

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
from pathlib import Path

import pytest

from engine.contract.events import Waiting
from engine.contract.job import Job
from engine.contract.search import Trial
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue, QueueSlot, hold, list_holders, list_waiting, move, release
from engine.runs.queue.tickets import locked_queue, queue_folder
from engine.runs.searches import save_trial
from engine.system import file_locks, paths
from tests.engine.runs.queue.slots import OPEN, list_waits, make_slot, ticket_of
from tests.support.limits import limit_file_size, limit_resource

ROOT = Path(__file__).parents[4]


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"tests.engine.runs.queue.{script}", *arguments]


def run_script(script: str, *arguments: str) -> list[int]:
    """Run one of the scripts in this folder with `arguments`, and return the numbers that it prints."""
    done = subprocess.run(
        command(script, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


@pytest.fixture(autouse=True)
def closed_slots() -> Iterator[None]:
    """Close the slots that a test has created."""
    yield
    while OPEN:
        OPEN.pop().close()


def poll_all(*slots: QueueSlot) -> None:
    for slot in slots:
        slot.poll()


class SlotProcess:
    """Process that holds a queue slot by running `hold_slot`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            command("hold_slot", *arguments), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=120)


# Order


def test_trials_of_one_search_share_cpu_but_no_gpu(tmp_path: Path) -> None:
    def trial_slot(name: str, search: str, *devices: str) -> QueueSlot:
        run = RunFolder(tmp_path / name)
        run.path.mkdir()
        save_trial(run, Trial(search=search, number=0, params={}, seed=0))
        OPEN.append(QueueSlot(run, Job.from_fields(devices=devices)))
        return OPEN[-1]

    slots = [
        trial_slot("a", "one", "cpu"),
        trial_slot("b", "one", "cpu"),
        trial_slot("c", "other", "cpu"),
        make_slot("d", "cpu"),
        trial_slot("e", "one", "GPU-1"),
        trial_slot("f", "one", "GPU-1"),
    ]
    poll_all(*slots)
    assert [slot.has_devices for slot in slots] == [True, True, False, False, True, False]
    assert list_waits() == {"c": ("a", "b"), "d": ("a", "b", "c"), "f": ("e",)}


def test_slot_waits_until_device_is_released() -> None:
    first, second = make_slot("first"), make_slot("second")
    first.poll()
    assert second.poll() == Waiting(position=1, behind=("first",))
    assert second.poll() is None
    assert not second.has_devices
    first.close()
    assert second.poll() is None
    assert second.has_devices
    assert list_holders() == {"x": ("second",)}


def test_slot_that_starts_at_once_shares_device() -> None:
    first, at_once, after = make_slot("first"), make_slot("at_once", start="at_once"), make_slot("after")
    first.poll()
    assert at_once.poll() is None
    assert at_once.has_devices
    assert list_holders() == {"x": ("first", "at_once")}
    assert after.poll() == Waiting(position=1, behind=("first", "at_once"))
    first.close()
    assert after.poll() == Waiting(position=1, behind=("at_once",))
    at_once.close()
    after.poll()
    assert after.has_devices


def test_move_changes_order() -> None:
    slots = {name: make_slot(name) for name in ("first", "a", "b", "c")}
    poll_all(*slots.values())
    assert list(list_waits()) == ["a", "b", "c"]
    assert move("c", -1)
    assert list(list_waits()) == ["a", "c", "b"]
    assert move("a", 10)
    assert list(list_waits()) == ["c", "b", "a"]
    assert move("b", -2)
    assert list_waits() == {"b": ("first",), "c": ("first", "b"), "a": ("first", "b", "c")}
    assert slots["b"].poll() == Waiting(position=1, behind=("first",))
    assert not move("first", -1)  # the run already has its devices
    assert not move("nobody", -1)
    slots["first"].close()
    poll_all(*(slots[name] for name in ("a", "b", "c")))
    assert [name for name, slot in slots.items() if slot.has_devices and name != "first"] == ["b"]


def test_held_slot_is_passed_and_keeps_position() -> None:
    first, held, after = make_slot("first"), make_slot("held"), make_slot("after")
    poll_all(first, held, after)
    assert hold("held")
    assert held.poll() == Waiting(position=1, behind=("first",), held=True)
    assert after.poll() == Waiting(position=2, behind=("first",))
    first.close()
    held.poll()
    assert not held.has_devices
    after.poll()
    assert after.has_devices
    assert (ticket_of("held").position, ticket_of("held").held) == (1, True)
    assert release("held")
    assert held.poll() == Waiting(position=1, behind=("after",))
    after.close()
    held.poll()
    assert held.has_devices
    assert not hold("held")  # it has its devices
    assert not release("nobody")


def test_ticket_describes_run() -> None:
    before = time.time()
    slots = [make_slot("first", "cpu"), make_slot("second", "cpu", "cpu")]
    poll_all(*slots)
    (found,) = list_waiting()
    assert (found.run_id, found.folder, found.devices, found.position) == ("second", "/runs/second", ("cpu",), 1)
    assert found.pid == os.getpid()
    assert before <= found.since <= time.time()


# Killed processes


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_killed_process_leaves_queue(state: str) -> None:
    keeper = make_slot("keeper", "y")
    keeper.poll()
    other = SlotProcess("other", "x" if state == "running" else "y")
    assert other.read_line() == state
    last = make_slot("behind", "x", "y")
    assert last.poll() == Waiting(position=1 if state == "running" else 2, behind=("keeper", "other"))
    other.kill()
    assert last.poll() == Waiting(position=1, behind=("keeper",))
    keeper.close()
    last.poll()
    assert last.has_devices


def test_worker_of_killed_supervisor_holds_no_devices() -> None:
    other = SlotProcess("other", "x", "with_worker")
    assert other.read_line() == "running"
    worker = int(other.read_line())
    assert list_holders() == {"x": ("other",)}
    other.process.kill()
    other.process.wait()
    os.kill(worker, 0)  # raises an error if the worker has ended
    assert list_holders() == {}
    os.kill(worker, signal.SIGKILL)
    other.process.communicate(timeout=120)


@pytest.mark.parametrize(
    ("event", "every", "minimum"),
    [
        ("line", "37", 20),
        pytest.param("opcode", "3", 1000, marks=[pytest.mark.long, pytest.mark.faults, pytest.mark.timeout(900)]),
    ],
)
def test_process_killed_anywhere_leaves_queue(event: str, every: str, minimum: int) -> None:
    (killed,) = run_script("kill_anywhere", event, every)
    assert killed > minimum


@pytest.mark.parametrize(
    ("processes", "rounds", "kills"),
    [(5, 6, 5), pytest.param(12, 100, 100, marks=[pytest.mark.long, pytest.mark.faults])],
)
def test_racing_and_killed_processes_never_share_device(processes: int, rounds: int, kills: int) -> None:
    uses, killed = run_script("race", str(processes), str(rounds), str(kills))
    assert uses >= processes * rounds
    assert killed == kills


# Damaged and deleted files


def test_slot_recreates_hold_after_logout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = [make_slot("holder"), make_slot("second"), make_slot("third")]
    poll_all(*slots)
    before = queue_folder()
    shutil.rmtree(before)
    runtime_folder = tmp_path / "run"
    runtime_folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_folder))
    poll_all(*slots)
    assert queue_folder() != before
    assert list_holders() == {"x": ("holder",)}
    assert list_waits() == {"second": ("holder",), "third": ("holder", "second")}
    for slot in slots:
        slot.close()
    assert list_holders() == {}


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b'{"waiting": 3}', b"\0" * 200])
def test_lost_order_starts_no_run_before_all_have_entered(content: bytes | None) -> None:
    slots = [make_slot(name) for name in ("first", "second", "third")]
    poll_all(*slots)
    order = queue_folder() / "order.json"
    order.unlink() if content is None else order.write_bytes(content)
    slots[0].close()
    slots[1].poll()
    assert not slots[1].has_devices  # the third might have the device
    slots[2].poll()
    assert list(list_waits()) == ["second", "third"]
    poll_all(*slots[1:])
    assert (slots[1].has_devices, slots[2].has_devices) == (True, False)


def test_invalid_tickets_are_removed(tmp_path: Path) -> None:
    slot = make_slot("one")
    slot.poll()
    folder = queue_folder()
    (folder / "torn.ticket").write_bytes(b'{"run_id": "tor')
    (folder / "empty.ticket").touch()
    content = slot.ticket_file.read_bytes()
    (folder / "unlocked.ticket").write_bytes(content)
    (tmp_path / "target").write_bytes(content)
    (folder / "link.ticket").symlink_to(tmp_path / "target")
    os.mkfifo(folder / "pipe.ticket")
    (folder / "folder.ticket").mkdir()
    assert list_holders() == {"x": ("one",)}
    assert {path.name for path in folder.glob("*.ticket")} == {slot.ticket_file.name, "folder.ticket"}
    assert (tmp_path / "target").exists()


def test_slot_rewrites_damaged_ticket() -> None:
    slot = make_slot("one")
    slot.poll()
    slot.ticket_file.write_bytes(b"{")
    assert list_holders() == {}
    slot.poll()
    assert list_holders() == {"x": ("one",)}


def test_queue_is_private_to_user() -> None:
    slot = make_slot("one")
    slot.poll()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in queue_folder().iterdir()}
    assert stat.S_IMODE(queue_folder().stat().st_mode) == 0o700
    assert (modes["mutex"], modes[slot.ticket_file.name]) == (0o600, 0o600)


def test_cannot_queue_names_the_cause() -> None:
    folder = paths.runtime_folder() / "queue"
    folder.write_text("a file")
    with pytest.raises(CannotQueue, match=r"File exists \(.*/queue\)"):
        make_slot("one").poll()
    folder.unlink()
    (folder / "mutex").mkdir(parents=True)
    with pytest.raises(CannotQueue, match=r"Is a directory \(.*/queue/mutex\)"):
        make_slot("one").poll()


def test_blocked_queue_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = make_slot("one")
    with monkeypatch.context() as patch:
        patch.setattr("engine.runs.queue.tickets.queue_folder", lambda: tmp_path / "removed")
        assert slot.poll() is None
    with file_locks.locked(queue_folder() / "mutex", 1.0):
        assert slot.poll() is None
        assert not slot.has_devices
        with pytest.raises(CannotQueue, match="Try again"), locked_queue(0.05):
            pass
    slot.poll()
    assert slot.has_devices


# Exhausted resources


def test_missing_descriptors_keep_tickets() -> None:
    slot = make_slot("one")
    slot.poll()
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)  # the mutex uses it, so none remains for a ticket
    with limit_resource(resource.RLIMIT_NOFILE, lowest + 1), pytest.raises(CannotQueue, match="Too many open files"):
        list_waiting()
    assert list_holders() == {"x": ("one",)}


def test_full_disk_leaves_no_partial_ticket() -> None:
    slot, at_once = make_slot("one"), make_slot("two", start="at_once")
    with limit_file_size(10):
        with pytest.raises(CannotQueue, match="File too large"):
            slot.poll()
        at_once.poll()
    assert not slot.has_devices
    assert at_once.has_devices
    assert list(queue_folder().glob("*.ticket")) == []
    at_once.poll()
    assert list_holders() == {"x": ("two",)}


def test_file_system_without_locks_allows_only_start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CannotQueue, match="XDG_RUNTIME_DIR"):
        make_slot("one").poll()
    with pytest.raises(CannotQueue, match="without file locks"):
        list_waiting()
    at_once = make_slot("two", start="at_once")
    assert at_once.poll() is None
    assert at_once.has_devices
    assert at_once.warning


def test_closed_slot_stays_closed() -> None:
    slot = make_slot("one")
    slot.poll()
    slot.close()
    assert slot.poll() is None
    assert list_holders() == {}
    slot.close()
