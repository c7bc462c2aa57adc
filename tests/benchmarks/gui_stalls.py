"""Time for which the GUI thread is blocked while it displays a run.

    python tests/benchmarks/gui_stalls.py [--seconds S] [--dataset FOLDER]

The real window runs offscreen, starts a training, and times every Qt event for S seconds after the first point of a
curve. Wall-clock time includes time that other processes use, such as the training. The thread's CPU time is therefore
printed, too. The exit code is 1 if an event takes more than 50 ms of CPU time.
"""

from __future__ import annotations

import collections
import os
import sys
import time

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QApplication

from gui.main_window import MainWindow
from gui.style import theme
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home

AIM_MS = 50.0
Worst = tuple[float, float, str]


class TimedApplication(QApplication):
    """Application that measures how long the handling of each event takes, while `counting` is True."""

    def __init__(self) -> None:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
        super().__init__(["footplate"])
        self.counting = False
        self.inside = 0
        self.count = 0
        self.wall_ms = 0.0
        self.worst: list[Worst] = []

    def notify(self, receiver: QObject, event: QEvent) -> bool:
        if not self.counting or self.inside:
            return super().notify(receiver, event)
        what = f"{type(receiver).__name__} {event.type().name}"
        self.inside += 1
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return super().notify(receiver, event)
        finally:
            took = 1000 * (time.perf_counter() - wall), 1000 * (time.thread_time() - cpu), what
            self.inside -= 1
            self.count += 1
            self.wall_ms += took[0]
            self.worst = sorted([*self.worst, took], reverse=True, key=lambda each: each[1])[:10]


class Scenario:
    """Controller that starts a training in the window, waits for `seconds`, stops it, and closes the window."""

    def __init__(self, app: TimedApplication, window: MainWindow, seconds: float) -> None:
        self.app, self.window, self.seconds = app, window, seconds
        self.start: float | None = None
        self.asked = False
        self.points = 0
        self.clock = QTimer()
        self.clock.timeout.connect(self.poll)
        self.clock.start(50)

    def poll(self) -> None:
        workspace = self.window.workspace
        if workspace is None:
            return
        if not self.asked and self.window.form.train.isEnabled() and workspace.launcher.ready:
            self.asked = True
            self.window.form.start()
        points = len(workspace.session.data.steps.step)
        if self.start is None and points:
            self.start = time.monotonic()
            self.app.counting = True
        if self.start is not None and self.app.counting and time.monotonic() - self.start > self.seconds:
            self.app.counting = False
            self.points = points
            self.window.status.stop.click()
        if self.points and not workspace.session.active:
            self.clock.stop()
            self.window.close()


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--dataset", default="")
    options = parser.parse_args()
    app = TimedApplication()
    theme.apply(app)
    with use_empty_home():
        window = MainWindow()
        if options.dataset:
            window.job_panel.set_dataset(options.dataset)
        window.job_panel.set_field("model", "mnist_cnn")
        window.job_panel.set_field("epochs", 10_000)
        window.resize(1280, 800)
        window.show()
        scenario = Scenario(app, window, options.seconds)
        app.exec()
    print(describe_environment())
    busy = app.wall_ms / 10 / options.seconds
    print(f"{app.count:,} events in {options.seconds:g} s, {scenario.points:,} points, GUI thread busy {busy:.1f}%")
    kinds = collections.Counter(what for _wall, _cpu, what in app.worst)
    print(f"the ten longest, by the thread's own time ({len(kinds)} kinds):")
    for wall, cpu, what in app.worst:
        print(f"  {cpu:6.1f} ms own, {wall:6.1f} ms wall  {what}")
    return 0 if all(cpu <= AIM_MS for _wall, cpu, _what in app.worst) else 1


if __name__ == "__main__":
    sys.exit(main())
