"""Time until a killed rank is named on screen.

    python tests/benchmarks/killed_rank.py [--times N] [--dataset FOLDER]

Opens the real window offscreen, trains with DDP on two CPU workers, sends SIGKILL to the worker of rank 1, and waits until
the window's status and log name the rank. The aim is 2 s each time; otherwise the exit code is 1. recovery.py measures
the restart, which doesn't happen here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QSpinBox

from gui.main_window import MainWindow
from tests.support.training_window import training_window, where

AIM_S = 2.0
NAMED = "Rank 1 was killed by SIGKILL"
TRAINED_S = 1.0
"""Seconds of training before the rank is killed."""


class Scenario:
    """Train, kill a rank, wait for its name; so many times. `took` holds the seconds to the log and to the status."""

    def __init__(self, window: MainWindow, times: int) -> None:
        self.window, self.times = window, times
        self.took: list[tuple[float, float]] = []
        self.ended_s: list[float] = []
        self._asked = False
        self._first_point: float | None = None
        self._killed: float | None = None
        self._in_log: float | None = None
        self._in_status: float | None = None
        self.clock = QTimer()
        self.clock.timeout.connect(self.look)
        self.clock.start(10)

    def look(self) -> None:
        workspace = self.window.workspace
        if workspace is None:
            return
        if not self._asked:
            for box in self.window.findChildren(QSpinBox):
                if box.accessibleName() == "CPU workers":
                    box.setValue(2)
            if self.window.form.train.isEnabled() and workspace.launcher.ready:
                self._asked = True
                self.window.form.start()
            return
        now = time.monotonic()
        if self._killed is None:
            if workspace.session.active and len(workspace.session.data.steps.step):
                self._first_point = self._first_point or now
                if now - self._first_point > TRAINED_S:
                    self._killed = now
                    self._kill(workspace.session.data.started.supervisor_pid)
            return
        if self._in_log is None and NAMED in self.log():
            self._in_log = now - self._killed
        if self._in_status is None and NAMED in self.window.status.status.text():
            self._in_status = now - self._killed
        if self._in_log is not None and self._in_status is not None and not workspace.session.active:
            self.took.append((self._in_log, self._in_status))
            self.ended_s.append(now - self._killed)
            self._asked, self._first_point, self._killed, self._in_log, self._in_status = False, None, None, None, None
            if len(self.took) == self.times:
                self.clock.stop()
                self.window.close()

    def log(self) -> str:
        """Return the text of the window's log."""
        return "\n".join(
            view.toPlainText() for view in self.window.findChildren(QPlainTextEdit) if view.accessibleName() == "Log"
        )

    @staticmethod
    def _kill(supervisor: int) -> None:
        (worker,) = [child for child in psutil.Process(supervisor).children() if child.name() == "footplate-w1"]
        worker.send_signal(signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--dataset", default="")
    options = parser.parse_args()
    app = QApplication(["footplate"])
    with training_window(app, options.dataset, strategy="ddp", restarts=0) as window:
        scenario = Scenario(window, options.times)
        app.exec()
    print(where())
    for (log, status), ended in zip(scenario.took, scenario.ended_s, strict=True):
        print(f"named in the log after {log:.2f} s, in the status after {status:.2f} s; all ended after {ended:.2f} s")
    slowest = max(map(max, scenario.took))
    print(f"slowest of {len(scenario.took)}: {slowest:.2f} s (aim {AIM_S:g} s)")
    return 0 if slowest <= AIM_S else 1


if __name__ == "__main__":
    sys.exit(main())
