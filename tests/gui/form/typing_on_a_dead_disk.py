"""Script that types paths into the form, first on a disk that doesn't respond, then on one that does.

    python typing_on_a_dead_disk.py FOLDER

The environment variable DEAD_DISK is a path on the disk that doesn't respond. FOLDER is on the other disk. Results are
printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from gui.form.panel import JobPanel
from gui.style import theme
from tests.support.pulse import StallMeter

DEAD = os.environ["DEAD_DISK"]
TYPED = {
    "dataset": f"{DEAD}/flowers",
    "model": f"{DEAD}/net.py",
    "resume_from": f"{DEAD}/run/last.pt",
    "weights_file": f"{DEAD}/weights.pt",
}
KEY_MS = 15


def wait_until(until: Callable[[], bool]) -> bool:
    """Process events until `until` returns True, for at most two minutes. Return the last result of `until`."""
    loop = QEventLoop()
    poll = QTimer(interval=10)
    poll.timeout.connect(lambda: until() and loop.quit())
    poll.start()
    QTimer.singleShot(120_000, loop.quit)
    loop.exec()
    return until()


def main(folder: str) -> None:
    app = QApplication([])
    theme.apply(app)
    panel = JobPanel()
    form = panel.form
    form.folder_chosen.connect(lambda job: QTimer.singleShot(0, form, partial(form.set_report, None)) if job else None)
    form.set_field("dataset", folder)
    panel.show()
    stuck = threading.Thread(target=lambda: os.stat(f"{DEAD}/x"), daemon=True)
    stuck.start()
    stuck.join(0.2)
    results = {"dead": stuck.is_alive(), "ready_before": wait_until(form.train.isEnabled)}
    pulse = StallMeter()
    for name, text in TYPED.items():
        control = form.rows[name].editor.control
        control.clear()
        keys = iter(text)
        typing = QTimer(interval=KEY_MS)
        typing.timeout.connect(
            lambda keys=keys, control=control, typing=typing: (
                QTest.keyClick(control, key) if (key := next(keys, None)) else typing.stop()
            )
        )
        typing.start()
        wait_until(lambda name=name, text=text: form.rows[name].value() == text)
    results["typed"] = all(form.rows[name].value() == text for name, text in TYPED.items())
    results["waits"] = wait_until(lambda: f"Waiting for the disk: {DEAD}" in form.train.toolTip())
    results["says_nothing_wrong"] = not any(problem.field in TYPED for problem in form.problems)
    for name in TYPED:
        form.set_field(name, {"dataset": folder, "model": "mnist_cnn"}.get(name, ""))
    results["ready_after"] = wait_until(form.train.isEnabled)
    pulse.stop()
    print(json.dumps(results | {"longest_stall_s": pulse.longest_s, "threads": threading.active_count()}), flush=True)
    os._exit(0)  # don't wait for threads that are blocked by the disk


if __name__ == "__main__":
    main(sys.argv[1])
