"""Deleting runs so that they can be had back: the desktop's trash on Linux, a trash of Footplate's own elsewhere.

After the freedesktop.org Trash specification 1.0: a trash is a folder with `files`, which holds what was thrown away,
and `info`, which says of each where it was and since when it is there.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from engine.runs.folder import ENDED, RunFolder
from engine.system import paths

_TRY_THE_NEXT = (
    errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip
"""What one trash may answer while another still takes the run."""


class CannotTrash(Exception):  # noqa: N818  (a state of things more than an error)
    """The run stays where it is; the text says why, in words for the user."""


@dataclass(frozen=True)
class Trashed:
    """Something in a trash. `place` is where it lies, `info` the file that says so, `origin` where it was.
    `desktop` is whether it is the desktop's trash, which the user empties there."""

    origin: Path
    place: Path
    info: Path
    desktop: bool


@dataclass(frozen=True)
class Holding:
    """What a folder holds on the disk: `bytes` is the length of its files, `checkpoint_bytes` that of its checkpoints,
    `freed_bytes` the room on the disk that is free again once they are gone (a file with another name elsewhere gives
    none back)."""

    bytes: int = 0
    checkpoint_bytes: int = 0
    freed_bytes: int = 0

    def __add__(self, other: Holding) -> Holding:
        return Holding(
            self.bytes + other.bytes,
            self.checkpoint_bytes + other.checkpoint_bytes,
            self.freed_bytes + other.freed_bytes,
        )


def holding(folder: Path) -> Holding:
    """What a run's folder holds, nothing where it is gone. What cannot be looked at counts as nothing."""
    total = Holding()
    for place, _folders, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            # Windows does not tell how many blocks a file takes.
            room = getattr(info, "st_blocks", -(-info.st_size // 512)) * 512 if info.st_nlink == 1 else 0
            checkpoint = info.st_size if Path(place) == folder / "checkpoints" else 0
            total += Holding(info.st_size, checkpoint, room)
    return total


def trash_run(run: RunFolder) -> Trashed:
    """Moves a run's folder to the trash. Raises CannotTrash where the run goes on, or the system does not allow it."""
    supervisor = run.supervisor()
    if run.state() not in ENDED or (supervisor is not None and supervisor.alive()):
        raise CannotTrash(f"{run.run_id} goes on: stop it first.")
    path = run.path.absolute()
    if not path.is_dir():
        raise CannotTrash(f"{run.run_id} is gone already.")
    for trash in _trashes(path):
        try:
            return _move(path, trash)
        except OSError as error:
            if error.errno not in _TRY_THE_NEXT:
                raise CannotTrash(f"{run.run_id} stays where it is: {error.strerror} ({trash.folder}).") from error
    raise CannotTrash(f"{run.run_id} stays where it is: there is no permission to move {path} to a trash.")


def put_back(thing: Trashed) -> None:
    """Moves something from the trash to where it was. Raises CannotTrash where it is there no more, or its place is
    taken."""
    if not thing.place.is_dir():
        raise CannotTrash(f"{thing.origin.name} is in the trash no more.")
    if thing.origin.exists():
        raise CannotTrash(f"There is another {thing.origin} by now; the one in the trash stays there.")
    try:
        thing.origin.parent.mkdir(parents=True, exist_ok=True)
        os.rename(thing.place, thing.origin)
    except OSError as error:
        raise CannotTrash(f"{thing.origin.name} stays in the trash: {error.strerror} ({thing.origin}).") from error
    thing.info.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Trash:
    """`top` is the folder from which the trash names what it holds; None where it gives whole paths."""

    folder: Path
    desktop: bool = True
    top: Path | None = None


def _trashes(path: Path) -> list[_Trash]:
    """The trashes that `path` may go to, the best first: the user's own, that of the disk it lies on, Footplate's."""
    own = _Trash(paths.home() / "trash", desktop=False)
    if sys.platform != "linux":
        return [own]
    found = [_Trash(Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "Trash")]
    top = _mount_of(path)
    if _may_be_shared(top / ".Trash"):
        found.append(_Trash(top / ".Trash" / str(os.getuid()), top=top))
    if top != Path("/"):  # what lies on the system's own disk goes to the user's trash
        found.append(_Trash(top / f".Trash-{os.getuid()}", top=top))
    return [*found, own]


def _mount_of(path: Path) -> Path:
    while not path.is_mount():
        path = path.parent
    return path


def _may_be_shared(folder: Path) -> bool:
    """Whether an administrator has made a trash for everybody there: sticky, and no link, as the specification asks."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def _move(path: Path, trash: _Trash) -> Trashed:
    """Moves `path` to that trash, on the same disk alone: a checkpoint of gigabytes is not copied to be thrown away.

    Raises OSError; PermissionError where another user has prepared the trash, or a link to one, at the top of a disk.
    """
    trash.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if trash.top is not None and {trash.folder.lstat().st_uid, trash.folder.stat().st_uid} != {os.getuid()}:
        raise PermissionError(errno.EPERM, "it belongs to another user, who could take what is moved there")
    info_folder, files = trash.folder / "info", trash.folder / "files"
    for folder in (info_folder, files):
        folder.mkdir(mode=0o700, exist_ok=True)
    info = _claim(info_folder, files, path, str(path.relative_to(trash.top) if trash.top is not None else path))
    place = files / info.stem
    try:
        os.rename(path, place)
    except OSError:
        info.unlink(missing_ok=True)
        raise
    return Trashed(path, place, info, trash.desktop)


def _claim(info_folder: Path, files: Path, path: Path, named: str) -> Path:
    """Writes the file that says where `path` was, under the first name that is free; whoever makes it has the name."""
    text = f"[Trash Info]\nPath={quote(named)}\nDeletionDate={time.strftime('%Y-%m-%dT%H:%M:%S')}\n"
    number = 1
    while True:
        name = path.name if number == 1 else f"{path.name}.{number}"
        number += 1
        if os.path.lexists(files / name):
            continue
        try:
            with open(info_folder / f"{name}.trashinfo", "x", encoding="utf-8") as stream:
                stream.write(text)
        except FileExistsError:
            continue
        return info_folder / f"{name}.trashinfo"
