"""Processes that are recorded in run folders."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from engine.runs.folder import process_alive, process_start
from tests.engine.supervisor.supervised import wait_until


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no zombies")
def test_only_the_recorded_process_counts_as_alive() -> None:
    start = process_start(os.getpid())
    assert process_alive(os.getpid(), start)
    assert not process_alive(os.getpid(), start - 2), "another process with this pid"
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    start = process_start(child.pid)
    assert process_alive(child.pid, start)
    child.kill()
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "the child to end")
    assert not process_alive(child.pid, start)
    child.communicate()
    assert not process_alive(child.pid, start)
