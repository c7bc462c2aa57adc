"""Where Footplate keeps things."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2]
"""Where the package `engine` lies: the working directory of our own interpreters, which import it from there."""
FOLDERS = "folders.toml"
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
"""The bits of a folder's mode that concern other users, and those that let them change its contents."""


def home() -> Path:
    """Footplate's own folder: FOOTPLATE_HOME, or the platform's place for a user's data."""
    chosen = os.environ.get("FOOTPLATE_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "Footplate"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Footplate"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "footplate"


def chosen_folders() -> dict[str, str]:
    """The folders that the user has chosen in `folders.toml` of the home, by what they are for: "runs" and "cache".
    What cannot be read, or could be written by others, counts as not chosen.
    """
    file = home() / FOLDERS
    try:
        text = file.read_text(encoding="utf-8") if is_own_word(file) else ""
        import tomllib

        values = tomllib.loads(text)
    except (OSError, ValueError):
        return {}
    return {name: path for name, path in values.items() if name in ("runs", "cache") and isinstance(path, str) and path}


def choose_folder(purpose: str, path: str) -> None:
    """Keeps `path` as the folder for "runs" or for the "cache"; "" for the usual one. Raises OSError."""
    import tomli_w

    folders = {name: kept for name, kept in (chosen_folders() | {purpose: path}).items() if kept}
    put_into_place(make_home() / FOLDERS, tomli_w.dumps(folders).encode())


def cache_folder() -> Path:
    """Where things lie that can be made again: FOOTPLATE_CACHE, or what the user has chosen, or in FOOTPLATE_HOME where
    that is set, or the platform's place for a user's caches.
    """
    chosen = os.environ.get("FOOTPLATE_CACHE") or chosen_folders().get("cache")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if os.environ.get("FOOTPLATE_HOME"):
        return home() / "cache"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "Footplate/Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/Footplate"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "footplate"


def runs_folder() -> Path:
    """Where the folders of the runs are: in the home, unless the user has chosen another place."""
    chosen = chosen_folders().get("runs")
    return Path(chosen).expanduser().absolute() if chosen else home() / "runs"


def make_home() -> Path:
    """The home, made if missing. Others may look into one that the user has made and named, but change nothing there.

    Raises OSError; PermissionError where it is somebody else's.
    """
    folder = home()
    if os.environ.get("FOOTPLATE_HOME") and folder.exists():
        _close(folder, _OTHERS_WRITE)
        return folder
    return private_folder(folder)


def private_folder(folder: Path) -> Path:
    """`folder`, made if missing with all that it lies in, and for its user alone, whatever the umask is.

    Raises OSError; PermissionError where it is somebody else's.
    """
    make_folder(folder)
    _close(folder, _OTHERS)
    return folder


def make_folder(folder: Path) -> None:
    """Makes `folder` if it is missing, and all that it lies in, for its user alone whatever the umask is. Raises
    OSError.
    """
    missing = [ancestor for ancestor in (folder, *folder.parents) if not ancestor.exists()]
    for ancestor in reversed(missing):
        ancestor.mkdir(mode=0o700, exist_ok=True)


def trusted_folder(folder: Path) -> Path:
    """`folder`, resolved, and made if missing: one from which code or the user's consent is taken, so that nobody
    else may be able to change what is in it or to put another folder in its place. A group that may write to a folder
    above it is trusted as its members are.

    Raises OSError; PermissionError, which names the folder that is open to others, where it can't be trusted.
    """
    make_folder(folder)
    real = folder.resolve()
    if not hasattr(os, "getuid"):
        return real
    own = {os.getuid(), 0}
    for ancestor in dict.fromkeys((real, *real.parents, folder.absolute(), *folder.absolute().parents)):
        info = ancestor.lstat()
        if info.st_uid not in own:
            raise PermissionError(f"{ancestor} belongs to another user, who could change its contents")
        sticky = info.st_mode & stat.S_ISVTX  # where others may add files, and change none of its user's
        written_by_others = _OTHERS_WRITE if ancestor == real else 0 if sticky else stat.S_IWOTH
        if not stat.S_ISLNK(info.st_mode) and info.st_mode & written_by_others:
            raise PermissionError(
                f"{ancestor} can be changed by other users (its mode is {stat.S_IMODE(info.st_mode):o})"
            )
    return real


def for_the_user_alone(path: str, flags: int) -> int:
    """An `opener` for `open`: a file that it makes is its user's alone, whatever the umask is. A link is not followed,
    since a folder that comes from elsewhere may hold one to any file of the user's. Raises OSError.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def put_into_place(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Writes a file for its user alone, so that `path` is either as before or whole; with `sync`, what it holds is on
    the disk before. Raises OSError, with nothing left behind.
    """
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def is_own_word(file: Path) -> bool:
    """Whether nobody but its user (or root) can have written what a file says, as far as the system tells. Raises
    OSError.
    """
    if not hasattr(os, "getuid"):
        return True
    info = file.stat()
    return info.st_uid in (os.getuid(), 0) and not info.st_mode & stat.S_IWOTH


def runtime_folder() -> Path:
    """A folder of mode 0700 that is ours alone, with a path short enough for sockets where there is such a place; made
    if missing. A place that somebody else has taken is passed by.

    Raises PermissionError where all are taken.
    """
    for folder in _runtime_folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if _is_ours(folder):
                return folder
    folder = home() / "runtime"
    if folder.is_symlink():
        raise PermissionError(f"{folder} is a link, which another user may have made; remove it")
    return private_folder(folder)


def _runtime_folders() -> Iterator[Path]:
    """In the user's own runtime folder, of which a program that was not started from a session has not been told; else
    where all users may make one.
    """
    owner = os.getuid() if hasattr(os, "getuid") else os.getlogin()
    for base in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{owner}"):
        if base and os.path.isdir(base) and os.access(base, os.W_OK):
            yield Path(base) / "footplate"
    yield Path(tempfile.gettempdir()) / f"footplate-{owner}"


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder, not a link to one, that is ours; it is then closed to others."""
    if not hasattr(os, "getuid"):
        return True
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return False
    if stat.S_IMODE(info.st_mode) != 0o700:
        folder.chmod(0o700)
    return True


def _close(folder: Path, bits: int) -> None:
    """Takes from other users what `bits` let them do in a folder of ours, where its file system knows of users."""
    if not hasattr(os, "getuid"):
        return
    info = folder.stat()
    if os.getuid() not in (0, info.st_uid) and (info.st_uid or info.st_mode & stat.S_IWOTH):
        raise PermissionError(
            f"{folder} belongs to another user, who could read and change its contents; set FOOTPLATE_HOME "
            "to a folder that you own"
        )
    if info.st_uid == os.getuid() and info.st_mode & bits:
        with suppress(OSError):
            folder.chmod(stat.S_IMODE(info.st_mode) & ~bits)


def sample_dataset() -> Path:
    """The small real dataset that ships with Footplate."""
    from importlib.resources import files

    return Path(str(files("resources").joinpath("sample")))
