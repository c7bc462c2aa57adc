"""Entry point of `footplate`, which opens the window (with an optional folder or job file) or runs a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main() -> int:
    """Open the window, or run a command if one is given; return the exit code."""
    arguments = sys.argv[1:]
    if len(arguments) == 1 and os.sep in arguments[0] and not os.path.exists(arguments[0]):
        # A mistyped path, which the terminal would report as an unknown command.
        print(f"footplate: there is no {arguments[0]!r}.", file=sys.stderr)
        return 2
    if arguments and not _is_path_to_open(arguments):
        from engine.cli import main as terminal

        return terminal(arguments)
    from gui.app import main as window

    return window(*arguments)


def _is_path_to_open(arguments: Sequence[str]) -> bool:
    """Return True if the arguments are a single existing path, which the window opens, and False for a command.

    A folder that has the name of a command needs a slash, such as "./train".
    """
    if len(arguments) > 1 or not os.path.exists(arguments[0]):
        return False
    if os.path.basename(arguments[0]) != arguments[0]:  # no command contains a slash
        return True
    from engine.cli.main import command_names

    return arguments[0] not in command_names()


if __name__ == "__main__":
    sys.exit(main())
