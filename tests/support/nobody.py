"""Another user of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.engine.supervisor.supervised import ROOT

NOBODY = 65534


def as_nobody(code: str, *words: str, uid: int = NOBODY, before: str = "") -> Any:
    """What Python `code` prints as JSON when another user of the machine runs it; `before` it becomes that user's,
    who may not be able to read this Python's files, the rest is imported.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    begin = f"import json, os, socket, sys\n{before}\nos.setgroups([])\nos.setgid({uid})\nos.setuid({uid})\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code, *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
