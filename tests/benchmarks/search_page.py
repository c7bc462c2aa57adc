"""Cost of a search with many trials on the GUI thread, offscreen.

    python tests/benchmarks/search_page.py [--trials 500] [--frames 40]

Repaints each plot, all of them with the table as in scrolling, changes the selection in all plots, and delivers new data each
second, plot by plot. The aim is a median of 16 ms CPU time, a frame at 60 Hz; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PySide6.QtWidgets import QApplication

from engine.contract.search import SearchState
from gui.search.search_view import SearchView
from gui.sources.search_data import data_of
from gui.style import theme
from tests.support.made_searches import a_state, make_search
from tests.support.training_window import where

AIM_MS = 16.0
SIZE = (1250, 1300)


def measure(frame: Callable[[], object], frames: int) -> tuple[float, float]:
    """Return the median and the longest of `frames` frames in milliseconds of CPU time, after three for warm-up."""
    times = []
    for _ in range(frames + 3):
        start = time.thread_time()
        frame()
        times.append(1000 * (time.thread_time() - start))
        QApplication.processEvents()
    return statistics.median(times[3:]), max(times[3:])


class Live:
    """Running search: each refresh advances a trial."""

    def __init__(self, view: SearchView, trials: int) -> None:
        self.view, self.trials, self.step = view, trials, 0
        self.folder = make_search("live", trials, running=4)
        search = self.folder.search()
        assert search is not None
        self.search = search

    def data(self) -> SearchState:
        self.step += 1
        return a_state(self.trials, running=4 + self.step % 2)

    def look(self) -> None:
        self.view.show_data(data_of(self.folder, self.search, self.state, "running"))

    def read(self) -> None:
        self.state = self.data()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--frames", type=int, default=40)
    options = parser.parse_args()
    os.environ["FOOTPLATE_HOME"] = tempfile.mkdtemp()
    app = QApplication([])
    theme.apply(app)
    view = SearchView()
    view.resize(*SIZE)
    view.show()
    live = Live(view, options.trials)
    live.read()
    live.look()
    for _ in range(50):
        app.processEvents()
    plots = [plot for plot in view.plots.all if plot.isVisible()]
    results = {f"paint {type(plot).__name__}": measure(plot.viewport().repaint, options.frames) for plot in plots}
    results["paint all of the page"] = measure(view.repaint, options.frames)
    places = iter(range(10**6))

    def select() -> None:
        view.table.select([next(places) % options.trials])

    results["another trial selected"] = measure(select, options.frames)
    data = data_of(live.folder, live.search, a_state(options.trials, running=5), "running")
    other = data_of(live.folder, live.search, a_state(options.trials, running=4), "running")
    both = [data, other]
    results["new data: table and words"] = measure(lambda: (both.reverse(), view.show_data(both[0])), options.frames)
    for plot in plots:
        name = f"new data: {type(plot).__name__}"
        results[name] = measure(lambda plot=plot: (plot.show_data(data), plot.viewport().repaint()), options.frames)  # type: ignore[misc]
    print(where())
    print(f"{options.trials} trials, {SIZE[0]} x {SIZE[1]} pixels; milliseconds of the window's thread")
    for name, (median, longest) in results.items():
        print(f"{name:36} median {median:6.1f}   longest {longest:6.1f}")
    view.close()
    return 0 if all(median <= AIM_MS for median, _longest in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
