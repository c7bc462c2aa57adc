"""Helpers that execute the command in a child process, or in the process of the test."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from engine.cli.main import main

ROOT = Path(__file__).parents[3]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class TerminalStream(io.StringIO):
    """Text in memory that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "footplate.py"), *arguments]


def footplate(*arguments: str, **environment: str) -> Answer:
    result = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=os.environ | environment, timeout=300, check=False
    )
    return Answer(result.returncode, result.stdout, result.stderr)


def run_in_this_process(*arguments: str) -> Answer:
    """Run `footplate` with these arguments in this process, which takes a tenth of the time of a child process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())
