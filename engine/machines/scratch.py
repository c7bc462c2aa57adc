"""A node's folder for its sockets and for what multiprocessing and torch put into temporary folders: it goes with the
node, or, where that was killed, with the next one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

from engine.system import paths

_NAME = "node-"


def make_scratch() -> Path:
    """Makes this process's folder, whose path is short enough for sockets, and has temporary files made there."""
    base = paths.runtime_folder()
    for left in base.glob(f"{_NAME}*"):
        pid = left.name.removeprefix(_NAME)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    folder = paths.private_folder(base / f"{_NAME}{os.getpid()}")
    tempfile.tempdir = str(folder)
    return folder
