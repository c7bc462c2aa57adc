"""Processes that tests leave behind when the test process is killed. The watcher must kill them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from engine.system import paths
from tests.engine.supervisor.supervised import has_exited
from tests.support.waiting import wait_until

TESTS = """
import os, signal, subprocess
import pytest
from tests.support.orphans import kill_orphans

with pytest.MonkeyPatch.context() as patch, kill_orphans(patch):
    print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the end of a parent process")
def test_watcher_kills_processes_of_killed_tests() -> None:
    killed = subprocess.run([sys.executable, "-c", TESTS], stdout=subprocess.PIPE, cwd=paths.PACKAGES, check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: has_exited(int(killed.stdout)), "the end of the process", 30)
