"""Script that uses a window whose runs folder stops responding.

The environment variable DEAD_DISK is the runs folder. It stops responding when the file DEAD_DISK_SINCE is created. The
script shows a run and all pages before and after that, and then closes the window. It prints the results as JSON: the
time for closing, the longest stalls before and after, and the stacks of the GUI thread at every access to the folder.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from engine.system import paths
from gui.main_window import MainWindow
from gui.pages import MONITOR, RUNS, SEARCHES, TRAIN
from gui.run.header import VIEWS
from gui.style import theme
from gui.widgets.column_model import select_row
from tests.gui.sources.written_runs import supervise_here, write_run
from tests.support.pulse import StallMeter, read_core_wait_s
from tests.support.stage import process_events_until

LOOK_MS = 150
"""Time in milliseconds for which each page is shown."""


def use_window(window: MainWindow, answers: bool) -> None:
    """Show all pages, open runs and use their commands.

    `answers` is False if the runs folder has stopped responding.
    """
    work = window.workspace
    assert work is not None
    runs = work.runs
    for page in (RUNS, MONITOR, TRAIN):
        window.header.show_page(page)
        QTest.qWait(LOOK_MS)
    for view in range(len(VIEWS)):
        work.run.header.tabs.setCurrentIndex(view)
        QTest.qWait(LOOK_MS)
    window.header.show_page(RUNS)
    for row in range(runs.table.model().rowCount()):
        select_row(runs.table, row)
        QTest.qWait(LOOK_MS)
        for action in (runs.acts.show, runs.acts.fork, runs.acts.change, runs.acts.favorite):
            if action.isEnabled():
                action.trigger()
                QTest.qWait(LOOK_MS)
        window.job_panel.end_prefill()
        window.header.show_page(RUNS)
    runs.compare_requested.emit([run.run_id for run in runs.model.runs])
    QTest.qWait(LOOK_MS)
    window.header.show_page(SEARCHES)
    QTest.qWait(LOOK_MS)
    for action in (window.acts.preferences, window.acts.palette, window.acts.queue, window.acts.new_job):
        action.trigger()
        QTest.qWait(LOOK_MS)
    window.commands.menus.runs.aboutToShow.emit()
    window.commands.menus.datasets.aboutToShow.emit()
    if answers:
        return
    process_events_until(window.acts.train.isEnabled)
    window.form.start()
    QTest.qWait(LOOK_MS)


def main() -> None:
    app = QApplication([])
    theme.apply(app)
    dead, since = os.environ["DEAD_DISK"], Path(os.environ["DEAD_DISK_SINCE"])
    paths.choose_folder("runs", dead)
    for steps in (8, 400):
        write_run(steps)
    running = supervise_here(write_run(400, None))
    window = MainWindow()
    window.show()
    process_events_until(lambda: window.workspace is not None and window.workspace.runs.table.model().rowCount() == 3)
    window.show_run(running)
    process_events_until(lambda: window.form.train.isEnabled() and not window.workspace.session.loading)  # type: ignore[union-attr]
    pulse = StallMeter()
    use_window(window, answers=True)
    pulse.stop()
    before_s = pulse.longest_s
    with tempfile.TemporaryFile("w+") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
        since.touch()
        stuck = threading.Thread(target=lambda: os.stat(f"{dead}/x"), daemon=True)
        stuck.start()
        stuck.join(0.2)
        pulse = StallMeter()
        use_window(window, answers=False)
        pulse.stop()
        started, waited_s = time.monotonic(), read_core_wait_s()
        window.quit()
        closed_s = time.monotonic() - started - (read_core_wait_s() - waited_s)
        faulthandler.unregister(signal.SIGUSR1)
        stacks.seek(0)
        found = stacks.read().split("Stack (most")[1:]
    results = {"dead": stuck.is_alive(), "closed_s": closed_s, "touched": found}
    results |= {"longest_stall_before_s": before_s, "longest_stall_s": pulse.longest_s}
    print(json.dumps(results), flush=True)
    os._exit(0)  # don't wait for threads that are blocked by the disk


if __name__ == "__main__":
    main()
