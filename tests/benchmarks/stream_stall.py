"""Longest block of the window's event loop while a run streams.

    python tests/benchmarks/stream_stall.py [--seconds 8]

A real supervisor with a dummy worker sends a hundred step metrics per second, then 60,000 as fast as possible. The run's page
draws them, and the device panel shows the real sampler. Wall time includes other programs; CPU time is the window's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QHBoxLayout, QWidget

from gui.devices.panel import DevicesPanel
from gui.run.page import RunPage
from gui.sources.devices.sampler import SamplerProcess
from gui.sources.run_session import RunSession
from gui.style import theme
from tests.engine.supervisor.supervised import Supervised


class Turns:
    """Measures every turn of the event loop, in milliseconds of wall and of processor time."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processor: list[float] = []
        self._before = (time.perf_counter(), time.thread_time())
        self._timer = QTimer(interval=0)
        self._timer.timeout.connect(self._process_events)
        self._timer.start()

    def _process_events(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.wall.append(1000 * (now[0] - self._before[0]))
        self.processor.append(1000 * (now[1] - self._before[1]))
        self._before = now

    def stop(self) -> str:
        self._timer.stop()
        self._process_events()
        wall, processor = sorted(self.wall), sorted(self.processor)
        return (
            f"{len(wall):7} turns   longest {wall[-1]:6.1f} ms (processor {processor[-1]:5.1f} ms)   "
            f"99.9th percentile {wall[int(0.999 * len(wall))]:6.1f} ms (processor {processor[int(0.999 * len(wall))]:5.1f} ms)"
        )


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()


def stream(behaviour: str, store: RunSession, seconds: float) -> str:
    one = Supervised(behaviour, 1)
    try:
        store.open(one.run)
        while not len(store.data.steps.loss):
            QApplication.processEvents()
        turns = Turns()
        wait(seconds)
        report = turns.stop()
        store.stop()
        while store.active:
            QApplication.processEvents()
        return f"{len(store.data.steps.loss):7,} steps: {report}"
    finally:
        one.process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    app = QApplication([])
    theme.apply(app)
    window, store, panel, sampler = QWidget(), RunSession(), DevicesPanel(), SamplerProcess()
    row = QHBoxLayout(window)
    row.addWidget(panel)
    row.addWidget(RunPage(store), 1)
    sampler.snapshot.connect(panel.history.add)
    sampler.snapshot.connect(panel.update_snapshot)
    window.resize(1300, 950)
    window.show()
    sampler.start()
    wait(2.0)
    with tempfile.TemporaryDirectory(prefix="fp") as home:
        os.environ |= {"FOOTPLATE_HOME": home, "XDG_RUNTIME_DIR": home}
        for behaviour in ("forever", "flood 60000"):
            print(f"{behaviour:12} {stream(behaviour, store, options.seconds)}", flush=True)
    store.close()
    sampler.stop()


if __name__ == "__main__":
    main()
