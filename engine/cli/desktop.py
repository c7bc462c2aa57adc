"""``footplate desktop``: puts Footplate among the desktop's applications, and takes it from there."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.desktop.files import data_folder, install, remove
from engine.system.format import counted


def add_desktop(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=desktop)
    parser.add_argument(
        "action",
        choices=("install", "remove"),
        help="install an entry, icons and the type of job files in your own folders, or remove them",
    )


def desktop(options: argparse.Namespace) -> int:
    """Does it, and says where."""
    if not sys.platform.startswith("linux"):
        say("footplate: desktop entries are for Linux desktops; there is nothing to do on this system.", to=sys.stderr)
        return BAD_REQUEST
    folder = data_folder()
    try:
        if options.action == "install":
            written = install(start_command(), folder)
            say(f"Footplate is now among the applications: {counted(len(written), 'file')} in {folder}.")
            say("Remove them with: footplate desktop remove")
        else:
            removed = remove(folder)
            say(f"{counted(len(removed), 'file')} removed from {folder}.")
    except OSError as error:
        say(f"footplate: {error.filename or folder}: {error.strerror}.", to=sys.stderr)
        say("  Get write permission there, or set XDG_DATA_HOME to another folder.", to=sys.stderr)
        return BAD_REQUEST
    return COMPLETED


def start_command() -> list[str]:
    """What starts this Footplate: its command as it was found, so that an upgrade by pipx or uv leaves it valid, or
    this Python with `footplate.py` of a source tree.
    """
    called = Path(sys.argv[0]).absolute()
    if called.name == "footplate" and os.access(called, os.X_OK):
        return [str(called)]
    return [sys.executable, str(called)]
