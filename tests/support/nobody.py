"""Execution of code as another user of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.inference.prediction.sources import CannotLoad, find_files
from engine.runs.folder import run_at

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def run_as_nobody(code: str, *arguments: str, uid: int = NOBODY, before: str = "") -> Any:
    """Run Python `code` as another user, and return the JSON that it prints.

    `before` runs first, still as the current user: it can import modules that the other user may not read.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    preamble = f"import json, os, socket, sys\n{before}\nos.setgroups([])\nos.setgid({uid})\nos.setuid({uid})\n"
    done = subprocess.run(
        [sys.executable, "-c", preamble + code, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find_files_as_nobody(folder: str) -> tuple[list[tuple[str, str]], bool]:
    """Change the user of this process permanently, and search `folder` for images and for a run.

    Returns (field, message) of each problem with the images, and True if the user can't read a run in `folder`.
    """
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    problems: list[tuple[str, str]] = []
    try:
        find_files([folder], lambda _name: True, "image", "out")
    except CannotLoad as error:
        problems = [(each.field, each.message) for each in error.problems]
    return problems, run_at(folder) is None
