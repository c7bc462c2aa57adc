"""The line as it lies on the disk, and what anybody may do with it.

<pid>-<random>.ticket   who a run is and which devices it wants, in JSON; written once, locked by its supervisor
order.json              the names of the tickets that wait, in their order, and which of them are held
mutex                   its lock is had around every look at the others, and until what follows from it is done

A ticket that nobody has locked is of a process that has ended, and is swept. One that is locked and not in the order
has its devices: so a run that waits takes them by leaving the order, in one replacement of that file, and where the
order is lost nobody starts before all who wait have stood in line again. The runtime folder is the user's alone; what
else lies there and cannot be understood counts for nothing and is swept, too.
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
from engine.system.decode_errors import NOT_DECODED
from engine.system.file_locks import NOT_OFFERED, locked, open_file, take

PATIENCE_S = 5.0
"""How long somebody who looks at the line waits for others who do, each of whom takes about a millisecond."""

_SUFFIX = ".ticket"
_MOST_BYTES = 1 << 16
_NO_TICKET = (errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""What opening a ticket fails with where it has just gone, is not a file, or is not the user's."""


class CannotQueue(Exception):  # noqa: N818  (a state of things more than an error)
    """Nobody can stand in line here, or look at it; the text says why and what to do, in words for the user."""


class Busy(CannotQueue):
    """Somebody else has looked at the line for all the time that there was patience for."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in line. `pid` and `start_time` are its supervisor's, as in `SupervisorFile`; it came at `since` (seconds
    since the epoch).

    `position` counts from 1 through the whole line, and is None for a run that has its devices; `behind` are the ids
    of the runs that it waits for. While it is `held` the others go before it, and it keeps its place. Runs of one
    `search` are on the CPU together: as many as it was told to train at once.
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
    waiting: list[str] = msgspec.field(default_factory=list)
    held: set[str] = msgspec.field(default_factory=set)


class Table:
    """The line, as long as it is locked: `tickets` by their names, the `order` of those that wait, which are `held`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tickets = {name: ticket for name in _names(folder) if (ticket := _living(folder / name)) is not None}
        order = _read_order(folder)
        self.order = [name for name in dict.fromkeys(order.waiting) if name in self.tickets]
        self.held = order.held & set(self.order)

    def save(self) -> None:
        """Replaces the order on the disk. Raises OSError."""
        temporary = self.folder / "order.part"
        temporary.write_bytes(msgspec.json.encode(_Order(self.order, self.held)))
        os.replace(temporary, self.folder / "order.json")

    def leave(self, name: str) -> None:
        """Has a run wait no longer: from now on it has its devices. Raises OSError."""
        self.order.remove(name)
        self.held.discard(name)
        self.save()

    def running(self) -> list[str]:
        """The tickets of the runs that have their devices, the oldest first."""
        waiting = set(self.order)
        return sorted((name for name in self.tickets if name not in waiting), key=lambda name: self.tickets[name].since)

    def behind(self, name: str) -> tuple[str, ...]:
        """The runs that a waiting one waits for: those that have one of its devices, and those before it that "
        "want one.
        """
        before = [other for other in self.order[: self.order.index(name)] if other not in self.held]
        found = (self.tickets[other] for other in (*self.running(), *before))
        return tuple(dict.fromkeys(ticket.run_id for ticket in found if _collide(ticket, self.tickets[name])))

    def shown(self, name: str) -> Ticket:
        """A waiting run's ticket as it stands in line."""
        return msgspec.structs.replace(
            self.tickets[name],
            position=self.order.index(name) + 1,
            held=name in self.held,
            behind=self.behind(name),
        )

    def waiting_as(self, run_id: str) -> str | None:
        """The name of a waiting run's ticket."""
        return next((name for name in self.order if self.tickets[name].run_id == run_id), None)


@contextmanager
def table(patience_s: float = PATIENCE_S) -> Iterator[Table]:
    """The line, locked. Raises CannotQueue, of which Busy where `patience_s` is not enough."""
    folder = None
    try:
        folder = queue_folder()
        with locked(folder / "mutex", patience_s):
            yield Table(folder)
    except (TimeoutError, FileNotFoundError) as error:  # the latter where the folder is removed meanwhile
        raise Busy(f"Another Footplate process is blocking the queue ({folder}). Try again.") from error
    except OSError as error:
        raise CannotQueue(_why(error, folder)) from error


def queue_folder() -> Path:
    """Where the tickets are; made if missing. It is another once its user has logged out. Raises OSError."""
    folder = paths.runtime_folder() / "queue"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def new_name() -> str:
    """A name for a ticket, which no other ever had."""
    return f"{os.getpid()}-{os.urandom(6).hex()}{_SUFFIX}"


def write_ticket(path: Path, ticket: Ticket) -> int:
    """Makes a ticket, locked, and returns its descriptor. Needs the table. Raises OSError."""
    descriptor = open_file(path, os.O_CREAT | os.O_EXCL)
    try:
        if not take(descriptor):
            raise BlockingIOError(errno.EAGAIN, "a new file is locked by another process")
        content = msgspec.json.encode(ticket)
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def waiting() -> list[Ticket]:
    """The runs that wait, in their order. Raises CannotQueue."""
    with table() as line:
        return [line.shown(name) for name in line.order]


def holders() -> dict[str, tuple[str, ...]]:
    """The ids of the runs that have each device that is not free (a GPU by its UUID, or "cpu"). Raises CannotQueue."""
    found: dict[str, tuple[str, ...]] = {}
    with table() as line:
        for ticket in (line.tickets[name] for name in line.running()):
            for device in ticket.devices:
                found[device] = (*found.get(device, ()), ticket.run_id)
    return found


def move(run_id: str, positions: int) -> bool:
    """Moves a waiting run so many positions back in the whole line, forward where negative, and not beyond its ends.

    False where the run does not wait. Raises CannotQueue.
    """
    with table() as line:
        name = line.waiting_as(run_id)
        if name is None:
            return False
        goal = max(0, line.order.index(name) + positions)
        line.order.remove(name)
        line.order.insert(goal, name)
        line.save()
    return True


def hold(run_id: str) -> bool:
    """Has the others go before a waiting run until it is released. False where it does not wait. Raises CannotQueue."""
    return _set_held(run_id, held=True)


def release(run_id: str) -> bool:
    """Has a held run wait for its devices alone. False where it does not wait. Raises CannotQueue."""
    return _set_held(run_id, held=False)


def _set_held(run_id: str, *, held: bool) -> bool:
    with table() as line:
        name = line.waiting_as(run_id)
        if name is None:
            return False
        (line.held.add if held else line.held.discard)(name)
        line.save()
    return True


def _collide(one: Ticket, other: Ticket) -> bool:
    """Whether two runs can't train at the same time."""
    both = set(one.devices) & set(other.devices)
    return bool(both - {CPU} if one.search and one.search == other.search else both)


def _names(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]


def _living(path: Path) -> Ticket | None:
    """The ticket at `path`; None, and it is swept, where its process has ended or it cannot be understood."""
    ticket = None
    try:
        descriptor = open_file(path)
    except OSError as error:
        if error.errno not in _NO_TICKET:
            raise
    else:
        try:
            ticket = None if take(descriptor) else _read(descriptor)
        finally:
            os.close(descriptor)  # and with it goes the lock of one that nobody had locked
    if ticket is None:
        with suppress(OSError):
            path.unlink()
    return ticket


def _read(descriptor: int) -> Ticket | None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return msgspec.json.decode(os.read(descriptor, _MOST_BYTES), type=Ticket)
    except NOT_DECODED:
        return None


def _read_order(folder: Path) -> _Order:
    try:
        return msgspec.json.decode((folder / "order.json").read_bytes(), type=_Order)
    except (OSError, *NOT_DECODED):
        return _Order()


def _why(error: OSError, folder: Path | None) -> str:
    if error.errno in NOT_OFFERED and folder is not None:
        return (
            f"{folder} is on a file system without file locks, which the queue needs. Set XDG_RUNTIME_DIR "
            "to a folder of your own on a local disk, or start the run at once."
        )
    why = str(error) if error.strerror is None else f"{error.strerror} ({error.filename or folder})"
    return f"The queue can't be used: {why}. Fix that, or start the run at once."
