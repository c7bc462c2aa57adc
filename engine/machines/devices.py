"""This machine's devices, as its sampler sees them."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from engine.contract.devices import Snapshot
from engine.system import paths

_SAMPLER_S = 60.0


def snapshot() -> Snapshot:
    """The devices now. Raises OSError, subprocess.SubprocessError, msgspec.DecodeError."""
    done = subprocess.run(
        [sys.executable, "-m", "engine.gpus", "--once"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=paths.PACKAGES,
        timeout=_SAMPLER_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Snapshot)
