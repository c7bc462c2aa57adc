"""``footplate desktop``: the entry of Footplate among the desktop's applications."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from engine.cli.terminal import BAD_REQUEST, COMPLETED, fail, say
from engine.desktop.files import data_folder, install, remove
from engine.system.format import counted


def add_desktop(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=desktop)
    parser.add_argument(
        "action",
        choices=("install", "remove"),
        help="install an entry, icons and the type of job files for your account, or remove them",
    )


def desktop(options: argparse.Namespace) -> int:
    """Install or remove the entry, and print the folder."""
    if not sys.platform.startswith("linux"):
        return fail("desktop entries are for Linux desktops; there is nothing to do on this system.")
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
        fail(f"{error.filename or folder}: {error.strerror}.")
        say("  Get write permission there, or set XDG_DATA_HOME to another folder.", to=sys.stderr)
        return BAD_REQUEST
    return COMPLETED


def start_command() -> list[str]:
    """Return the command that starts this Footplate.

    That is the script as it was found, which stays valid after an upgrade by pipx or uv, or this Python with the
    `footplate.py` of a source tree.
    """
    script = Path(sys.argv[0]).absolute()
    if script.name == "footplate" and os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, str(script)]
