"""The one command, `footplate`: the window, alone or with a folder or job file to open, and the terminal's commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main() -> int:
    """Opens the window where no command is given, else runs the command; returns the exit code."""
    arguments = sys.argv[1:]
    if len(arguments) == 1 and os.sep in arguments[0] and not os.path.exists(arguments[0]):
        print(f"footplate: there is no {arguments[0]!r}.", file=sys.stderr)
        return 2
    if arguments and not _to_open(arguments):
        from engine.cli import main as terminal

        return terminal(arguments)
    from gui.app import main as window

    return window(*arguments)


def _to_open(arguments: Sequence[str]) -> bool:
    """Whether they are one path for the window; a folder that is called as a command is takes a slash, as in
    "./train".
    """
    if len(arguments) > 1 or not os.path.exists(arguments[0]):
        return False
    if os.path.basename(arguments[0]) != arguments[0]:
        return True
    from engine.cli.main import command_names

    return arguments[0] not in command_names()


if __name__ == "__main__":
    sys.exit(main())
