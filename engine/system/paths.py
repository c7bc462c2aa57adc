"""Folders of Footplate, and atomic writing of private files."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engine.system.files import read_file

PACKAGES = Path(__file__).resolve().parents[2]
"""Folder that contains the package `engine`.

It is the working directory of child interpreters, so that they can import it.
"""
FOLDERS = "folders.toml"
_OTHERS_ACCESS, _OTHERS_WRITE = 0o077, 0o022
"""Mode bits of a folder that give other users any access, and those that let them change its content."""


def home() -> Path:
    """Return Footplate's home folder.

    It is FOOTPLATE_HOME or, if that is not set, the platform's folder for user data.
    """
    chosen = os.environ.get("FOOTPLATE_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "Footplate"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Footplate"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "footplate"


def read_chosen_folders() -> dict[str, str]:
    """Return the folders that the user has set in `folders.toml`, by their purpose, "runs" or "cache".

    The file is ignored if it can't be read or if other users can write to it.
    """
    file = home() / FOLDERS
    try:
        text = read_file(file).decode() if is_only_writable_by_user(file) else ""
        import tomllib

        values = tomllib.loads(text)
    except (OSError, ValueError):
        return {}
    return {name: path for name, path in values.items() if name in ("runs", "cache") and isinstance(path, str) and path}


def choose_folder(purpose: str, path: str) -> None:
    """Set the folder for "runs" or "cache". If `path` is "", restore the default. Raises OSError."""
    import tomli_w

    folders = {name: chosen for name, chosen in (read_chosen_folders() | {purpose: path}).items() if chosen}
    write_atomically(make_home() / FOLDERS, tomli_w.dumps(folders).encode())


def cache_folder() -> Path:
    """Return the folder for files that can be created again.

    It is the first of these that is set: FOOTPLATE_CACHE, the user's choice, a folder in FOOTPLATE_HOME, the platform's
    cache folder.
    """
    chosen = os.environ.get("FOOTPLATE_CACHE") or read_chosen_folders().get("cache")
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
    """Return the folder with all run folders. It is in the home folder, unless the user has set another one."""
    chosen = read_chosen_folders().get("runs")
    return Path(chosen).expanduser().absolute() if chosen else home() / "runs"


def make_home() -> Path:
    """Return Footplate's home folder, after creating it if it is missing.

    If the user has created the folder, other users may be able to read it, but not to change it.

    Raises:
        PermissionError: The folder belongs to another user.
        OSError: The folder can't be created.
    """
    folder = home()
    if os.environ.get("FOOTPLATE_HOME") and folder.exists():
        _restrict_access(folder, _OTHERS_WRITE)
        return folder
    return make_private_folder(folder)


def make_private_folder(folder: Path) -> Path:
    """Return `folder`, after making it accessible only to this user.

    The folder and its parents are created if they are missing.

    Raises:
        PermissionError: The folder belongs to another user.
        OSError: The folder can't be created.
    """
    make_folder(folder)
    _restrict_access(folder, _OTHERS_ACCESS)
    return folder


def make_folder(folder: Path) -> None:
    """Create `folder` and its missing parents, accessible only to this user, whatever the umask is. Raises OSError."""
    missing = [ancestor for ancestor in (folder, *folder.parents) if not ancestor.exists()]
    for ancestor in reversed(missing):
        ancestor.mkdir(mode=0o700, exist_ok=True)


def make_trusted_folder(folder: Path) -> Path:
    """Return the resolved path of `folder`, after checking that no other user can change or replace it.

    The folder is created if it is missing. Code and the user's consent are read from such folders. A group that can
    write to a parent folder is trusted.

    Raises:
        PermissionError: Another user can change the folder that the message names.
        OSError: The folder can't be created.
    """
    make_folder(folder)
    real = folder.resolve()
    if not hasattr(os, "getuid"):
        return real
    trusted = {os.getuid(), 0}
    # The owner of a link on the way to the folder could replace it.
    for ancestor in dict.fromkeys((real, *real.parents, folder.absolute(), *folder.absolute().parents)):
        info = ancestor.lstat()
        if info.st_uid not in trusted:
            raise PermissionError(f"{ancestor} belongs to another user, who could change its contents")
        is_sticky = info.st_mode & stat.S_ISVTX  # others may add files, but not change existing ones
        if ancestor == real:
            forbidden_bits = _OTHERS_WRITE
        elif is_sticky:
            forbidden_bits = 0
        else:
            forbidden_bits = stat.S_IWOTH
        if not stat.S_ISLNK(info.st_mode) and info.st_mode & forbidden_bits:  # the mode of a link has no meaning
            raise PermissionError(
                f"{ancestor} can be changed by other users (its mode is {stat.S_IMODE(info.st_mode):o})"
            )
    return real


def open_private(path: str, flags: int) -> int:
    """Open a file without following links. It is an `opener` for `open`. New files are private, whatever the umask is.

    A folder from other people may contain a link to any of the user's files, or a FIFO without a reader. Both raise
    OSError.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o600)


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write a private file atomically. Raises OSError.

    At any time, `path` has either its old content or all of `data`. If `sync` is True, the content is flushed to the
    disk before the file is replaced.
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


def explain_full_disk(error: BaseException) -> str:
    """Explain that a disk has no space or inodes left for a file, with a remedy.

    Return "" if `error` has another reason.
    """
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    file = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    name = f" of {file}" if file is not None else ""
    with suppress(OSError, AttributeError):  # Windows has no statvfs
        if file is not None and not os.statvfs(file.parent).f_favail:
            return f"The disk{name} can't hold more files: it has no inodes left. Remove files that you don't need."
    return f"The disk{name} is full, or your quota on it is used up. Free some space."


def is_only_writable_by_user(file: Path) -> bool:
    """Return True unless another user may have written the file. Always True on Windows. Raises OSError.

    Root and the file's group are trusted: where each user has a group of their own, the umask 002 is common.
    """
    if not hasattr(os, "getuid"):
        return True
    info = file.stat()
    return info.st_uid in (os.getuid(), 0) and not info.st_mode & stat.S_IWOTH


def runtime_folder() -> Path:
    """Return a private folder (mode 0700) for sockets, with a short path if possible. It is created if it is missing.

    Candidates that belong to other users are skipped. If all do, the folder is in Footplate's home folder.

    Raises:
        PermissionError: The folder in the home folder is a link, or belongs to another user.
        OSError: The folder can't be created.
    """
    for folder in _list_runtime_folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if _try_make_private(folder):
                return folder
    folder = home() / "runtime"
    if folder.is_symlink():
        raise PermissionError(f"{folder} is a link, which another user may have made; remove it")
    return make_private_folder(folder)


def _list_runtime_folders() -> Iterator[Path]:
    """Yield the candidates for `runtime_folder`.

    They are in XDG_RUNTIME_DIR and /run/user/UID, if these are writable folders, and in the temporary folder.
    """
    owner = os.getuid() if hasattr(os, "getuid") else os.getlogin()
    for base in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{owner}"):
        if base and os.path.isdir(base) and os.access(base, os.W_OK):
            yield Path(base) / "footplate"
    yield Path(tempfile.gettempdir()) / f"footplate-{owner}"


def _try_make_private(folder: Path) -> bool:
    """Remove other users' access to a folder. Return False without a change if it is a link or another user's."""
    if not hasattr(os, "getuid"):
        return True
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return False
    if stat.S_IMODE(info.st_mode) != 0o700:
        folder.chmod(0o700)
    return True


def _restrict_access(folder: Path, bits: int) -> None:
    """Remove the mode bits `bits` from a folder of this user, if its file system supports users.

    Raises PermissionError if the folder belongs to another user.
    """
    if not hasattr(os, "getuid"):
        return
    info = folder.stat()
    is_own = os.getuid() in (0, info.st_uid)  # root may use every folder
    is_safe_folder_of_root = info.st_uid == 0 and not info.st_mode & stat.S_IWOTH
    if not is_own and not is_safe_folder_of_root:
        raise PermissionError(
            f"{folder} belongs to another user, who could read and change its contents; set FOOTPLATE_HOME "
            "to a folder that you own"
        )
    if info.st_uid == os.getuid() and info.st_mode & bits:
        with suppress(OSError):  # a file system without modes
            folder.chmod(stat.S_IMODE(info.st_mode) & ~bits)


def sample_dataset() -> Path:
    """Return the folder of a small dataset with real images, which is included in Footplate."""
    from importlib.resources import files

    return Path(str(files("resources").joinpath("sample")))
