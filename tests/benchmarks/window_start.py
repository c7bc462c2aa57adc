"""Time from the start of the window's process to its first complete paint.

    python tests/benchmarks/window_start.py [--times N]

The benchmark starts the real command N times offscreen and, if Xvfb is installed, N times on an X screen, with a home
folder that has been used before. The first start of each kind fills caches and isn't counted. The exit code is 1 if a
median exceeds 0.6 s.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.frame import ROOT, empty_home, options_of, where

AIM_S = 0.6
CHILD = """
import os, sys, time
from gui import app, main_window
painted = main_window.MainWindow.paintEvent
def first_paint(window, event):
    painted(window, event)
    from PySide6.QtCore import QTimer
    # The children are painted within the same event, after the window itself; a turn later all is on screen.
    QTimer.singleShot(0, window, said)
    main_window.MainWindow.paintEvent = painted
def said():
    print(time.monotonic() - float(os.environ["STARTED"]), "torch" in sys.modules, flush=True)
    from PySide6.QtWidgets import QApplication
    QApplication.closeAllWindows()
main_window.MainWindow.complete = lambda window: None
main_window.MainWindow.paintEvent = first_paint
sys.argv = ["footplate"]
import footplate
sys.exit(footplate.main())
"""


def start_once(environment: dict[str, str]) -> float:
    """Start the window and return the seconds until the end of its first paint."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        env={**environment, "STARTED": str(time.monotonic())},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, torch = child.stdout.split()
    assert torch == "False", "the window's process has imported torch"
    return float(seconds)


def measure(name: str, environment: dict[str, str], times: int) -> bool:
    start_once(environment)
    taken = [start_once(environment) for _ in range(times)]
    median = statistics.median(taken)
    print(f"{name:10} median {median:.3f} s, least {min(taken):.3f} s, most {max(taken):.3f} s of {times}")
    return median <= AIM_S


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    print(where())
    with empty_home():
        base = dict(os.environ)
        base.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each start compiles changed modules anew
        met = measure("offscreen", {**base, "QT_QPA_PLATFORM": "offscreen"}, times)
        if shutil.which("Xvfb"):
            number = str(90 + os.getpid() % 100)
            with subprocess.Popen(
                ["Xvfb", f":{number}", "-screen", "0", "1280x800x24"], stderr=subprocess.DEVNULL
            ) as x:
                while not Path(f"/tmp/.X11-unix/X{number}").exists():
                    time.sleep(0.02)
                met &= measure("Xvfb", {**base, "DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"}, times)
                x.terminate()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
