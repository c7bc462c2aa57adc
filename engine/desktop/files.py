"""The files that a Linux desktop knows Footplate by, in the user's own data folder.

Sources: Desktop Entry Specification, Icon Theme Specification, Shared MIME-info Database, AppStream (all of
freedesktop.org), and the XDG Base Directory Specification for where they belong.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template

from engine.system import paths

ICON_SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
"""Edges of the icons in pixels; resources/desktop/icons holds one for each."""
_UPDATE_S = 60.0


def data_folder() -> Path:
    """Where a user's desktop looks for files of the user's own: XDG_DATA_HOME, which counts only where it is
    absolute.
    """
    chosen = Path(os.environ.get("XDG_DATA_HOME", ""))
    return chosen if chosen.is_absolute() else Path.home() / ".local/share"


def desktop_files(command: Sequence[str], folder: Path) -> dict[Path, bytes]:
    """What belongs below `folder`, by path. `command` starts Footplate; its first word is the path of a program."""
    ours = files("resources").joinpath("desktop")
    hicolor = folder / "icons/hicolor"
    found = {hicolor / f"{n}x{n}/apps/footplate.png": ours.joinpath(f"icons/{n}.png").read_bytes() for n in ICON_SIZES}
    vector = files("resources").joinpath("icons/footplate.svg").read_bytes()
    entry = Template(ours.joinpath("footplate.desktop").read_text(encoding="utf-8"))
    text = entry.substitute(exec=exec_line(command), try_exec=command[0].replace("\\", "\\\\"))
    return found | {
        hicolor / "scalable/apps/footplate.svg": vector,
        folder / "mime/packages/footplate.xml": ours.joinpath("mime.xml").read_bytes(),
        folder / "metainfo/org.footplate.footplate.metainfo.xml": ours.joinpath("metainfo.xml").read_bytes(),
        # The last one, since only with it Footplate is among the applications.
        folder / "applications/footplate.desktop": text.encode(),
    }


def exec_line(command: Sequence[str]) -> str:
    """`command` as an entry's Exec: first as a quoted string of its own rules, then as any string of an entry.

    Source: Desktop Entry Specification, "The Exec key".
    """
    words = (re.sub(r'(["`$\\])', r"\\\1", word).replace("%", "%%") for word in command)
    return " ".join(f'"{word}"' for word in words).replace("\\", "\\\\")


def install(command: Sequence[str], folder: Path) -> list[Path]:
    """Writes the files and returns their paths. Raises OSError, and then leaves no file that was not there before."""
    wanted = desktop_files(command, folder)
    new = [path for path in wanted if not path.exists()]
    try:
        for path, content in wanted.items():
            paths.make_folder(path.parent)
            paths.write_atomically(path, content)
    except OSError:
        for path in new:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, folder)
        raise
    _refresh(folder)
    return list(wanted)


def remove(folder: Path) -> list[Path]:
    """Removes the files, and the folders that become empty by that, and returns the paths of those that were there.
    Raises OSError.
    """
    there = [path for path in desktop_files([""], folder) if os.path.lexists(path)]
    for path in there:
        path.unlink()
    if there:
        _refresh(folder)
    for path in there:
        _remove_empty(path.parent, folder)
    return there


def _remove_empty(inner: Path, outer: Path) -> None:
    """Removes `inner`, and then what it lies in below `outer`, as far as each is empty."""
    with suppress(OSError):
        while inner != outer:
            inner.rmdir()
            inner = inner.parent


def _refresh(folder: Path) -> None:
    """Has the desktop read the files again, where it has the tools for that; others look by themselves at the next
    login.
    """
    for tool, part in (("update-mime-database", "mime"), ("update-desktop-database", "applications")):
        program = shutil.which(tool)
        if program is not None and (folder / part).is_dir():
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run([program, folder / part], capture_output=True, timeout=_UPDATE_S, check=False)
    with suppress(OSError):
        os.utime(folder / "icons/hicolor")  # by which desktops see that an icon was added or removed
