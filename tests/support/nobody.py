"""Execution of code as another user of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.engine.supervisor.supervised import ROOT

NOBODY = 65534


def as_nobody(code: str, *arguments: str, uid: int = NOBODY, before: str = "") -> Any:
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
