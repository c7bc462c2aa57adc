"""Windows that are killed. The run must continue, and the next window must find it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

import psutil
import pytest

from engine.contract.job import save_job
from engine.system import paths
from tests.conftest import MARK
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Follow, Make, StartRun, Uninterrupted
from tests.faults.real_runs import Hold, assert_same_checkpoints, is_alive
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


class Window:
    """Process that runs `tests.faults.window`, with the lines that it has printed."""

    def __init__(self, *arguments: str) -> None:
        self.logged: list[str] = []
        environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.window", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, name="window")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.logged.append(line.rstrip("\n"))

    def wait_for(self, beginning: str) -> str:
        """Wait for a line that starts with `beginning`, and return the remainder of the line."""
        found: list[str] = []

        def has_text() -> bool:
            found[:] = [line for line in list(self.logged) if line.startswith(beginning)]
            return bool(found)

        wait_until(has_text, f"“{beginning}” from the window, which said {self.logged}")
        return found[0].removeprefix(beginning)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for socket in paths.runtime_folder().glob("window-*.sock"):
            socket.unlink()  # socket of the killed window, which the next start would remove

    def close(self) -> int:
        """Interrupt the process with SIGINT and return its exit code."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(120)
        self._reader.join()
        return code

    def __enter__(self) -> Window:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


def find_test_processes(tmp_path: Path) -> list[psutil.Process]:
    """Return all running processes that inherited the environment of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == str(tmp_path) and is_alive(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_killed_window_does_not_affect_the_run(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    hold.set_action("training")
    run = start_run(job())
    hold.wait_until_reached()
    with Window() as window:
        assert window.wait_for("opened ") == run.folder.run_id
        window.wait_for("status Running")
        window.kill()
    hold.release()
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job()))


@pytest.mark.long
def test_run_outlives_the_window_that_started_it(
    follow: Follow, job: Make, hold: Hold, uninterrupted: Uninterrupted, *, separate_home: Path, tmp_path: Path
) -> None:
    run_job = job("ddp", 2, epochs=120, checkpoint_steps=0)
    save_job(run_job, separate_home / "last-job.toml")
    with Window("train") as first:
        run = follow(first.wait_for("opened "))
        assert run.folder.job() == run_job
        step = run.wait_for_step(10).step
        hold.set_action("training")
        hold.wait_until_reached()
        first.kill()
    wait_until(
        lambda: set(find_test_processes(tmp_path)) <= set(run.processes()), "the end of the window's other processes"
    )
    assert run.folder.state() == "running"
    hold.release()
    run.wait_for_step(step + 50)
    hold.set_action("training")
    hold.wait_until_reached()
    assert sorted(run.workers()) == [0, 1]
    with Window() as second:
        assert second.wait_for("opened ") == run.folder.run_id
        second.wait_for("status Running")
        hold.release()
        second.wait_for("status Completed")
        assert second.close() == 0
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run_job))
