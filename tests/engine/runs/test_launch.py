"""Preloader that dies before it has answered all requests."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.runs import launch
from engine.runs.folder import RunFolder
from engine.runs.launch import Preloader
from tests.support.scripts import write_script
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """Return a list that collects runs which would be started without the preloader. They aren't started."""
    runs: list[RunFolder] = []

    def start(run: RunFolder) -> int:
        runs.append(run)
        return 1

    monkeypatch.setattr(launch, "start_supervisor", start)
    return runs


def start_suspended_preloader() -> tuple[Preloader, int]:
    """Start a preloader that appears to be ready although its child is suspended. Return it and the child's pid."""
    before = set(psutil.Process().children())
    preloader = Preloader()
    preloader.start()
    (child,) = set(psutil.Process().children()) - before
    assert os.getsid(child.pid) == child.pid, "signals from the terminal don't end it"
    os.kill(child.pid, signal.SIGSTOP)
    assert not preloader.ready
    preloader.ready = True
    return preloader, child.pid


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are forked on Linux only")
@pytest.mark.parametrize("recover", [Preloader.poll, Preloader.close, Preloader.start])
def test_killed_preloaders_pending_run_is_started(
    tmp_path: Path, started: list[RunFolder], recover: Callable[[Preloader], None]
) -> None:
    run = RunFolder(tmp_path)
    preloader, pid = start_suspended_preloader()
    preloader.start_run(run)
    assert not started
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not preloader.alive, "the child to go")
    recover(preloader)
    assert started == [run]
    preloader.close()


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are forked on Linux only")
def test_preloader_may_answer_in_parts_and_until_it_is_closed(
    tmp_path: Path, started: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_gate = f"until [ -e {tmp_path}/gate ]; do sleep 0.02; done"
    wait_for_close = "read -r nothing"  # it ends when no more requests can follow
    script = f"printf rea; {wait_for_gate}; echo dy; read -r folder; {wait_for_close}; echo started 77 $folder"
    write_script(tmp_path / "python", script)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    preloader = Preloader()
    preloader.start()
    for is_ready in (False, True):
        assert select.select([preloader], [], [], PATIENCE_S)[0]
        preloader.poll()
        assert preloader.ready is is_ready
        (tmp_path / "gate").touch()
    preloader.start_run(RunFolder(tmp_path))
    preloader.close()
    assert (started, preloader.pids) == ([], {str(tmp_path): 77})


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are forked on Linux only")
@pytest.mark.timeout(60)
def test_preloader_that_hangs_is_killed_on_close(
    tmp_path: Path, started: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_EXIT_TIMEOUT_S", 0.05)
    preloader, pid = start_suspended_preloader()
    run = RunFolder(tmp_path)
    preloader.start_run(run)
    preloader.close()
    assert started == [run]
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="supervisors are forked on Linux only")
def test_run_is_started_although_dead_preloaders_pipe_is_open(tmp_path: Path, started: list[RunFolder]) -> None:
    preloader, pid = start_suspended_preloader()
    pipes = [os.open(f"/proc/{pid}/fd/{fd}", flags) for fd, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY))]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "the child to go")
    run = RunFolder(tmp_path)
    preloader.start_run(run)
    assert started == [run]
    for pipe in pipes:
        os.close(pipe)
    preloader.close()


@pytest.mark.skipif(sys.platform == "win32", reason="supervisors are forked on Linux only")
def test_preloader_ignores_exits_of_other_children(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from engine.supervisor.preload import _reap

def start(status):
    pid = os.fork()
    if not pid:
        os._exit(0) if status == "exited" else os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

other = start("exited")
folders = {start("killed"): Path(sys.argv[1])}
_reap(folders)
assert folders == {}, folders
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=120)
    log = (tmp_path / "supervisor.log").read_text()
    assert log == "The supervisor was killed by SIGKILL (signal 9); if nobody sent it, the system was out of memory.\n"
