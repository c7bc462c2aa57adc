"""Time from the click on Runs to the rows on screen.

    python tests/benchmarks/runs_list.py [--runs N] [--times N]

The benchmark writes N runs with complete logs (60 steps and 4 epochs; every twelfth interrupted, every third with
notes). It opens the real window offscreen in a new process, with a warm disk cache, and clicks Runs. It times the
painting of all rows: with the index that an earlier window has written, where the aim is 0.3 s; with a damaged index;
and with a list that has been loaded before. Wall-clock time includes other processes, so the CPU time is printed, too.
Then it times a search, sorting by the best metric, a refresh without changes, and the command palette. The exit code is
1 if the median with the index misses the aim.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from engine.contract.job import save_job
from engine.runs.folder import RunFolder, SupervisorFile
from engine.runs.index import RunIndex
from engine.runs.notes import change_notes
from engine.system import paths
from tests.benchmarks.frame import ROOT, describe_environment, make_parser, use_empty_home
from tests.gui.sources.written_runs import job, list_run_events, write

AIM_S = 0.3
MODELS = ("resnet18", "resnet50", "vit_b_16", "convnext_tiny", "mobilenet_v3_small")
OUTCOMES = ("completed", "completed", "stopped", "failed")

CHILD = """
import sys, time
from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from gui.style import theme
from gui.main_window import MainWindow
from gui.pages import RUNS
from gui.sources.run_list import RunList

expected, cold = int(sys.argv[1]), sys.argv[2] == "cold"
refresh = RunList.refresh
if cold:
    RunList.refresh = lambda runs: None
app = QApplication(["footplate"])
theme.apply(app)
window = MainWindow()
window.show()
painted = {}

class Watcher(QObject):
    def eventFilter(self, target, event):
        if event.type() == QEvent.Type.Paint:
            QTimer.singleShot(0, self, self.record)
        return False
    def record(self):
        rows = window.workspace.runs.model.rowCount()
        if rows and "first" not in painted:
            painted["first"] = time.perf_counter()
        if rows == expected and "all" not in painted:
            painted["all"] = time.perf_counter()
            painted["own"] = time.process_time()

tick = QTimer()
tick.start(5)

def wait_until(done):
    while not done():
        app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)

wait_until(lambda: window.workspace is not None)
runs = window.workspace.runs
settled_at = time.perf_counter() + 2
wait_until(lambda: time.perf_counter() > settled_at and (cold or runs.model.rowCount() == expected))
RunList.refresh = refresh
watcher = Watcher()
runs.table.viewport().installEventFilter(watcher)
bar = window.header.tabs
start, own = time.perf_counter(), time.process_time()
QTest.mouseClick(bar, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, bar.tabRect(RUNS).center())
wait_until(lambda: "all" in painted)
figures = [painted["first"] - start, painted["all"] - start, painted["own"] - own]

def timed(act, done):
    start = time.perf_counter()
    act()
    wait_until(done)
    figures.append(time.perf_counter() - start)

settled = []
runs.run_list.complete.connect(settled.append)
window.workspace.run_list._timer.stop()
runs.refresh()
wait_until(lambda: settled)
timed(lambda: runs.filters.text.setText("resnet50 1"), lambda: 0 < runs.model.rowCount() < expected)
runs.filters.reset()
timed(lambda: runs.table.sortByColumn(2, Qt.SortOrder.DescendingOrder), lambda: True)
settled.clear()
timed(runs.refresh, lambda: settled)
timed(window.acts.palette.trigger, lambda: True)
palette, keys = window.commands._palette, []
for letter in "completed 12":
    start = time.perf_counter()
    QTest.keyClicks(palette.field, letter)
    palette.repaint()
    keys.append(time.perf_counter() - start)
figures.append(max(keys))
palette.hide()
print(*figures, flush=True)
window.close()
"""


def make_runs(count: int) -> None:
    """Create the folders of `count` synthetic runs, which began at intervals of twenty minutes."""
    now = time.time()
    for number in range(count):
        chosen = job(
            name=f"try {number}" if number % 2 else "",
            model=MODELS[number % len(MODELS)],
            strategy="ddp" if number % 4 == 0 else "single",
        )
        start = now - 1200 * (count - number)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(start))
        run = RunFolder(paths.runs_folder() / f"{stamp}-{chosen.model.name}-{number:04x}")
        run.checkpoints.mkdir(parents=True)
        save_job(chosen, run.job_file)
        outcome = None if number % 12 == 0 else OUTCOMES[number % len(OUTCOMES)]
        events = list(list_run_events(chosen, 60, outcome, "out of memory" if outcome == "failed" else ""))  # type: ignore[arg-type]
        offset = start - events[0].time
        for event in events:
            event.time += offset
        write(run.events_file, events)
        run.write_supervisor(SupervisorFile(pid=2**22 + 1, start_time=start, endpoint="unix:/nowhere"))
        (run.checkpoints / "last.pt").write_bytes(b"weights")
        if number % 3 == 0:
            change_notes(run.path, tags=(f"series {number % 7}",), text="what was tried", favorite=number % 30 == 0)


def time_window(environment: dict[str, str], runs: int, how: str) -> list[float]:
    """Open the list of runs in a new window process, use it, and return the times in seconds.

    The items are: until the first rows, until all `runs` rows, CPU time for all rows, a search, sorting, a refresh, the
    command palette, and the slowest key press in the palette. If `how` is "cold", the click on Runs loads the list. If
    it is "as it is", the window loads the list at its start.
    """
    command = [sys.executable, "-c", CHILD, str(runs), how]
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [float(seconds) for seconds in child.stdout.split()]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    print(describe_environment())
    with use_empty_home():
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        make_runs(options.runs)
        start = time.perf_counter()
        states = [summary.state for summary in RunIndex().summaries()]
        print(f"{len(states):,} runs read for the first time, without a window: {time.perf_counter() - start:.2f} s")
        start = time.perf_counter()
        assert [summary.state for summary in RunIndex().summaries()] == states
        size = RunIndex.file().stat().st_size
        print(f"read again through the index ({size / 1e6:.1f} MB): {time.perf_counter() - start:.3f} s")
        environment = dict(os.environ)
        taken = [time_window(environment, options.runs, "cold") for _ in range(options.times)]
        names = ("first rows", "all rows", "of which own", "search", "sort", "renewal", "palette", "slowest key")
        medians = [statistics.median(column) for column in zip(*taken, strict=True)]
        print(
            "cold, with the index, medians: " + ", ".join(f"{n} {s:.3f} s" for n, s in zip(names, medians, strict=True))
        )
        print(
            f"all rows: least {min(t[1] for t in taken):.3f} s, most {max(t[1] for t in taken):.3f} s of {len(taken)}"
        )
        warm = [time_window(environment, options.runs, "as it is")[1] for _ in range(options.times)]
        print(f"in a window that read the list at its start: median {statistics.median(warm):.3f} s")
        RunIndex.file().write_bytes(b"damaged" + RunIndex.file().read_bytes())
        first, every, *_ = time_window(environment, options.runs, "cold")
        print(f"cold, with a damaged index: first rows {first:.3f} s, all rows {every:.3f} s")
        assert RunIndex.file().read_bytes()[:7] != b"damaged", "the index was not made anew"
    return 0 if medians[1] <= AIM_S else 1


if __name__ == "__main__":
    sys.exit(main())
