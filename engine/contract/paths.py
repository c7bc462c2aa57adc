"""Where Footplate keeps things."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path


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


def cache_folder() -> Path:
    """Where things lie that can be made again: FOOTPLATE_CACHE, or in FOOTPLATE_HOME where that is set, or the
    platform's place for a user's caches."""
    chosen = os.environ.get("FOOTPLATE_CACHE")
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
    """Where the folders of the runs are."""
    return home() / "runs"


def runtime_folder() -> Path:
    """A folder of mode 0700 that is ours alone, with a path short enough for sockets; made if missing.

    Raises PermissionError where the place is taken by somebody else.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base) and os.access(base, os.W_OK):
        folder = Path(base) / "footplate"
    else:
        owner = os.getuid() if hasattr(os, "getuid") else os.getlogin()
        folder = Path(tempfile.gettempdir()) / f"footplate-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid"):
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else; remove it or set XDG_RUNTIME_DIR")
        if stat.S_IMODE(info.st_mode) != 0o700:
            folder.chmod(0o700)
    return folder


def sample_dataset() -> Path:
    """The small real dataset that ships with Footplate."""
    from importlib.resources import files

    return Path(str(files("resources").joinpath("sample")))
