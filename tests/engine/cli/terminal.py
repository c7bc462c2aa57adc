"""Execution of the real command in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "footplate.py"), *arguments]


def footplate(*arguments: str, **environment: str) -> Answer:
    result = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=os.environ | environment, timeout=300, check=False
    )
    return Answer(result.returncode, result.stdout, result.stderr)
