"""Files of the queue, and operations on them.

<pid>-<random>.ticket   run and devices that it needs, as JSON; written once, and locked by its supervisor
order.json              names of the waiting tickets in order, and of those that are held
mutex                   locked by any process while it reads and changes the queue

An unlocked ticket belongs to an exited process and is removed. A locked ticket that is not in order.json has its
devices: a waiting run takes them by leaving the order, in a single replacement of that file. If the order is lost, no
run starts until all waiting runs have entered again. The runtime folder is private to the user. Unreadable files in it
are ignored and removed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from engine.contract.devices import CPU
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED, decode_file
from engine.system.file_locks import LOCKS_UNSUPPORTED, locked, open_file, try_lock

LOCK_TIMEOUT_S = 5.0
"""Maximum time in seconds to wait for the lock of the queue. Each process holds the lock for about a millisecond."""
_SUFFIX = ".ticket"
_MAX_BYTES = 1 << 16
_NO_TICKET = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""Error numbers that opening a ticket raises if it was removed, is not a file, or belongs to another user."""


class CannotQueue(Exception):  # noqa: N818 - describes the state
    """Raised when the queue can't be used. The message gives the reason and the remedy."""


class QueueBusy(CannotQueue):
    """Raised when another process has locked the queue for the entire timeout."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Entry of a run in the queue for devices.

    Attributes:
        folder: Path of the run folder.
        pid: Process id of its supervisor.
        start_time: Start time of its supervisor, as in `SupervisorFile`.
        since: Time at which it entered the queue, in seconds since the epoch.
        search: Name of its search, or "". Runs of the same search don't wait for each other's device "cpu".
        position: Position in the queue, counted from 1, or None if the run has its devices.
        held: True if the user holds the run. It doesn't start, and runs behind it don't wait for it.
        behind: Ids of the runs for which it waits.
    """

    run_id: str
    folder: str
    pid: int
    start_time: float
    devices: tuple[str, ...]
    since: float
    search: str = ""
    position: int | None = None
    held: bool = False
    behind: tuple[str, ...] = ()


class _Order(msgspec.Struct):
    """Content of order.json: names of the waiting tickets in order, and of those that are held."""

    waiting: list[str] = msgspec.field(default_factory=list)
    held: set[str] = msgspec.field(default_factory=set)


_TICKET, _ORDER = msgspec.json.Decoder(Ticket), msgspec.json.Decoder(_Order)


class LockedQueue:
    """Entries of the queue for devices while it is locked.

    Attributes:
        tickets: All tickets by name.
        order: Names of the waiting tickets, in order.
        held_names: Names of the waiting tickets that are held.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]
        self.tickets = {name: ticket for name in names if (ticket := _read_ticket(folder / name)) is not None}
        order = decode_file(folder / "order.json", _ORDER) or _Order()
        self.order = [name for name in dict.fromkeys(order.waiting) if name in self.tickets]
        self.held_names = order.held & set(self.order)

    def save(self) -> None:
        """Replace order.json by the current order of waiting tickets and the held ones. Raises OSError."""
        temporary = self.folder / "order.part"
        temporary.write_bytes(msgspec.json.encode(_Order(self.order, self.held_names)))
        os.replace(temporary, self.folder / "order.json")

    def grant_devices(self, name: str) -> None:
        """Give the waiting run with the ticket `name` its devices, by removing it from the order. Raises OSError."""
        self.order.remove(name)
        self.held_names.discard(name)
        self.save()

    def list_running(self) -> list[Ticket]:
        """Return the tickets of runs that have their devices, oldest first."""
        waiting = set(self.order)
        running = (ticket for name, ticket in self.tickets.items() if name not in waiting)
        return sorted(running, key=lambda ticket: ticket.since)

    def waiting_ticket(self, name: str) -> Ticket:
        """Return the ticket with this name of a waiting run, including its position and the runs for which it waits.

        These are runs that use one of its devices, and waiting runs before it that need one of them.
        """
        ticket, index = self.tickets[name], self.order.index(name)
        earlier = (self.tickets[other] for other in self.order[:index] if other not in self.held_names)
        behind = dict.fromkeys(
            other.run_id for other in (*self.list_running(), *earlier) if _need_same_device(other, ticket)
        )
        return msgspec.structs.replace(ticket, position=index + 1, held=name in self.held_names, behind=tuple(behind))

    def waiting_name(self, run_id: str) -> str | None:
        """Return the name of a waiting run's ticket, or None if the run is not waiting."""
        return next((name for name in self.order if self.tickets[name].run_id == run_id), None)


@contextmanager
def locked_queue(timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[LockedQueue]:
    """Context manager that locks the queue and yields its content. It deletes the tickets of exited processes.

    Raises CannotQueue, or QueueBusy if the lock is not free within `timeout_s`.
    """
    folder = None
    try:
        folder = queue_folder()
        with locked(folder / "mutex", timeout_s):
            yield LockedQueue(folder)
    except (TimeoutError, FileNotFoundError) as error:  # the folder may be removed in the meantime
        raise QueueBusy(f"Another Footplate process is blocking the queue ({folder}). Try again.") from error
    except OSError as error:
        raise CannotQueue(_explain_error(error, folder)) from error


def queue_folder() -> Path:
    """Return the folder of the queue, and create it if it is missing. Raises OSError.

    The system deletes it when the user logs out.
    """
    folder = paths.runtime_folder() / "queue"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def create_name() -> str:
    """Return a unique name for a ticket."""
    return f"{os.getpid()}-{os.urandom(6).hex()}{_SUFFIX}"


def write_ticket(path: Path, ticket: Ticket) -> int:
    """Write a ticket file, lock it, and return its file descriptor. The queue must be locked. Raises OSError."""
    descriptor = open_file(path, os.O_CREAT | os.O_EXCL)
    try:
        if not try_lock(descriptor):
            raise BlockingIOError(errno.EAGAIN, "a new file is locked by another process")
        content = msgspec.json.encode(ticket)
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def list_waiting() -> list[Ticket]:
    """Return the tickets of the waiting runs in order. Raises CannotQueue."""
    with locked_queue() as queue:
        return [queue.waiting_ticket(name) for name in queue.order]


def list_holders() -> dict[str, tuple[str, ...]]:
    """Return the ids of the runs that use each occupied device, keyed by the device.

    A device is the UUID of a GPU, or "cpu". Raises CannotQueue.
    """
    run_ids: dict[str, tuple[str, ...]] = {}
    with locked_queue() as queue:
        for ticket in queue.list_running():
            for device in ticket.devices:
                run_ids[device] = (*run_ids.get(device, ()), ticket.run_id)
    return run_ids


def move(run_id: str, positions: int) -> bool:
    """Move a waiting run back by `positions`, or forward if the number is negative.

    The run stays within the ends of the queue. Returns False if the run is not waiting. Raises CannotQueue.
    """
    with locked_queue() as queue:
        name = queue.waiting_name(run_id)
        if name is None:
            return False
        target = max(0, queue.order.index(name) + positions)
        queue.order.remove(name)
        queue.order.insert(target, name)
        queue.save()
    return True


def hold(run_id: str) -> bool:
    """Let other runs overtake a waiting run until `release` is called. Returns False if the run is not waiting.

    Raises CannotQueue.
    """
    return _set_held(run_id, held=True)


def release(run_id: str) -> bool:
    """Undo `hold` for a waiting run. Returns False if the run is not waiting. Raises CannotQueue."""
    return _set_held(run_id, held=False)


def _set_held(run_id: str, *, held: bool) -> bool:
    """Hold or release a waiting run. Returns False if the run is not waiting. Raises CannotQueue."""
    with locked_queue() as queue:
        name = queue.waiting_name(run_id)
        if name is None:
            return False
        if held:
            queue.held_names.add(name)
        else:
            queue.held_names.discard(name)
        queue.save()
    return True


def _need_same_device(one: Ticket, other: Ticket) -> bool:
    """Return True if two runs need a common device that they can't share."""
    common = set(one.devices) & set(other.devices)
    if one.search and one.search == other.search:
        common.discard(CPU)  # trials of the same search share the CPU
    return bool(common)


def _read_ticket(path: Path) -> Ticket | None:
    """Read a ticket file. If its process has exited, or if it is unusable, delete the file and return None."""
    ticket = None
    try:
        descriptor = open_file(path)
    except OSError as error:
        if error.errno not in _NO_TICKET:
            raise
    else:
        try:
            if not try_lock(descriptor) and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.lseek(descriptor, 0, os.SEEK_SET)  # on Windows, locking moves the position
                with suppress(*NOT_DECODED):
                    ticket = _TICKET.decode(os.read(descriptor, _MAX_BYTES))
        finally:
            os.close(descriptor)  # releases the lock if this call has acquired it
    if ticket is None:
        with suppress(OSError):
            path.unlink()
    return ticket


def _explain_error(error: OSError, folder: Path | None) -> str:
    """Explain to the user why the queue can't be used. `folder` is the queue's folder, or None if it can't be created."""
    if error.errno in LOCKS_UNSUPPORTED and folder is not None:
        return (
            f"{folder} is on a file system without file locks, which the queue needs. Set XDG_RUNTIME_DIR "
            "to a folder of your own on a local disk, or start the run at once."
        )
    reason = str(error) if error.strerror is None else f"{error.strerror} ({error.filename or folder})"
    return f"The queue can't be used: {reason}. Fix that, or start the run at once."
