"""``footplate desktop``: install or remove Footplate's entry in the list of desktop applications."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template

from engine.cli.terminal import COMPLETED, print_error, print_lines
from engine.system import paths
from engine.system.children import run_child
from engine.system.format import counted


def add_desktop(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=desktop)
    parser.add_argument(
        "action",
        choices=("install", "remove"),
        help="install an entry, icons and the type of job files for your account, or remove them",
    )


def desktop(options: argparse.Namespace) -> int:
    """Install or remove Footplate's desktop entry, and print the folder that contains it. Returns an exit code."""
    if not sys.platform.startswith("linux"):
        return print_error("desktop entries are for Linux desktops; there is nothing to do on this system.")
    folder = data_folder()
    try:
        if options.action == "install":
            written = install(start_command(), folder)
            print_lines(f"Footplate is now among the applications: {counted(len(written), 'file')} in {folder}.")
            print_lines("Remove them with: footplate desktop remove")
        else:
            removed = remove(folder)
            print_lines(f"{counted(len(removed), 'file')} removed from {folder}.")
    except OSError as error:
        code = print_error(f"{error.filename or folder}: {error.strerror}.")
        print_lines("  Get write permission there, or set XDG_DATA_HOME to another folder.", to=sys.stderr)
        return code
    return COMPLETED


def start_command() -> list[str]:
    """Return the command that starts this installation of Footplate.

    It is the path at which the script was found, which remains valid after an upgrade with pipx or uv. In a source
    tree, it is this Python interpreter with `footplate.py`.
    """
    script = Path(sys.argv[0]).absolute()
    if script.name == "footplate" and os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, str(script)]


ICON_SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
"""Side lengths of the icons in pixels. There is a file for each of them in resources/desktop/icons."""
_UPDATE_S = 60.0


def data_folder() -> Path:
    """Return the user's data folder: XDG_DATA_HOME if it is absolute, otherwise ~/.local/share."""
    chosen = Path(os.environ.get("XDG_DATA_HOME", ""))
    return chosen if chosen.is_absolute() else Path.home() / ".local/share"


def create_desktop_files(command: Sequence[str], folder: Path) -> dict[Path, bytes]:
    """Return the content of all files to install below `folder`, by path.

    `command` starts Footplate. Its first word is the path of a program.
    """
    resources = files("resources").joinpath("desktop")
    hicolor = folder / "icons/hicolor"
    icons = {
        hicolor / f"{side}x{side}/apps/footplate.png": resources.joinpath(f"icons/{side}.png").read_bytes()
        for side in ICON_SIZES
    }
    vector = files("resources").joinpath("icons/footplate.svg").read_bytes()
    entry = Template(resources.joinpath("footplate.desktop").read_text(encoding="utf-8"))
    text = entry.substitute(exec=quote_exec(command), try_exec=command[0].replace("\\", "\\\\"))
    return icons | {
        hicolor / "scalable/apps/footplate.svg": vector,
        folder / "mime/packages/footplate.xml": resources.joinpath("mime.xml").read_bytes(),
        folder / "metainfo/org.footplate.footplate.metainfo.xml": resources.joinpath("metainfo.xml").read_bytes(),
        # Written last, since this file adds Footplate to the list of applications.
        folder / "applications/footplate.desktop": text.encode(),
    }


def quote_exec(command: Sequence[str]) -> str:
    """Quote `command` for the Exec key of a desktop entry.

    It is quoted first by the rules for this key, then as a string value. Source: Desktop Entry Specification, "The Exec
    key".
    """
    arguments = (re.sub(r'(["`$\\])', r"\\\1", argument).replace("%", "%%") for argument in command)
    return " ".join(f'"{argument}"' for argument in arguments).replace("\\", "\\\\")


def install(command: Sequence[str], folder: Path) -> list[Path]:
    """Write the desktop files below `folder`, and return their paths.

    If this raises OSError, no new files are left behind.
    """
    contents = create_desktop_files(command, folder)
    new = [path for path in contents if not path.exists()]
    try:
        for path, content in contents.items():
            paths.make_folder(path.parent)
            paths.write_atomically(path, content)
    except OSError:
        for path in new:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, folder)
        raise
    _refresh(folder)
    return list(contents)


def remove(folder: Path) -> list[Path]:
    """Remove the desktop files, and the folders that become empty. Returns the removed paths. Raises OSError."""
    existing = [path for path in create_desktop_files([""], folder) if os.path.lexists(path)]
    for path in existing:
        path.unlink()
    _refresh(folder)  # before the folders that it reads are removed
    for path in existing:
        _remove_empty(path.parent, folder)
    return existing


def _remove_empty(inner: Path, outer: Path) -> None:
    """Remove `inner` and those of its parents that are below `outer`, as long as they are empty."""
    with suppress(OSError):
        while inner != outer:
            inner.rmdir()
            inner = inner.parent


def _refresh(folder: Path) -> None:
    """Make the desktop reload its files in `folder` by running update-mime-database and update-desktop-database.

    Without these programs, the desktop reloads them at the next login.
    """
    for tool, subfolder in (("update-mime-database", "mime"), ("update-desktop-database", "applications")):
        program = shutil.which(tool)
        if program is not None and (folder / subfolder).is_dir():
            with suppress(OSError, subprocess.TimeoutExpired):
                run_child([program, str(folder / subfolder)], timeout_s=_UPDATE_S)
    with suppress(OSError):
        os.utime(folder / "icons/hicolor")  # makes desktops reload icons
