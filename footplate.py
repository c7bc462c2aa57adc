"""The one command, `footplate`: the window, or with arguments the terminal's commands."""

from __future__ import annotations

import sys


def main() -> int:
    """Opens the window where no argument is given, else runs the command; returns the exit code."""
    if len(sys.argv) > 1:
        from engine.cli import main as terminal

        return terminal(sys.argv[1:])
    from gui.app import main as window

    return window()


if __name__ == "__main__":
    sys.exit(main())
