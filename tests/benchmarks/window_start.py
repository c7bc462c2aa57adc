"""Time from the start of the window's process to its first frame, and to the frame with all pages and devices.

    python tests/benchmarks/window_start.py [--times N]

The benchmark starts the real command N times offscreen and, if Xvfb is installed, N times on an X screen, with a home
folder that has been used before. The first start of each kind fills caches and isn't counted. The output shows times on
the clock and the lowest CPU time, which hardly depends on other load of the machine. The exit code is 1 if the median
time to the first frame exceeds 0.6 s.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.frame import ROOT, describe_environment, make_parser, use_empty_home

AIM_S = 0.6
CHILD = """
import os, sys, time
from gui import app
show_window = app._show_window
def show_and_measure(*arguments):
    from PySide6.QtCore import QTimer
    from gui.main_window import MainWindow
    add_pages = MainWindow.add_pages
    def print_times():
        print(time.monotonic() - float(os.environ["STARTED"]), time.process_time())
    def on_first_frame(window):
        print_times()
        print("torch" in sys.modules)
        from gui.sources.launcher import Launcher
        Launcher.preload = lambda launcher: None  # its process would disturb the next start
        add_pages(window)
        QTimer.singleShot(0, window, lambda: (print_times(), window.quit()))
    # The children are painted after the window itself, but in the same event. The window calls `add_pages` a turn later.
    MainWindow.add_pages = on_first_frame
    return show_window(*arguments)
app._show_window = show_and_measure
sys.argv = ["footplate"]
import footplate
sys.exit(footplate.main())
"""


class StartTimes(NamedTuple):
    """Seconds from the start of a window's process to its first frame and to its complete frame.

    Fields that end with `_cpu` are CPU times.
    """

    first: float
    first_cpu: float
    complete: float
    complete_cpu: float


def start_once(environment: dict[str, str]) -> StartTimes:
    """Start the window in a new process, and measure the times to its first and to its complete frame."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        env={**environment, "STARTED": str(time.monotonic())},
        capture_output=True,
        text=True,
        check=True,
    )
    first, torch, complete = child.stdout.splitlines()
    assert torch == "False", "the window's process has imported torch"
    return StartTimes(*map(float, (*first.split(), *complete.split())))


def measure(name: str, environment: dict[str, str], times: int) -> bool:
    start_once(environment)
    starts = [start_once(environment) for _ in range(times)]
    wall, cpu, complete, complete_cpu = zip(*starts, strict=True)
    median = statistics.median(wall)
    print(
        f"{name:10} median {median:.3f} s, least {min(wall):.3f} s, most {max(wall):.3f} s of {times}, "
        f"processor time {min(cpu):.3f} s; complete after {statistics.median(complete):.3f} s, "
        f"processor time {min(complete_cpu):.3f} s"
    )
    return median <= AIM_S


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    print(describe_environment())
    with use_empty_home():
        base = dict(os.environ)
        base.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each start compiles changed modules anew
        met = measure("offscreen", {**base, "QT_QPA_PLATFORM": "offscreen"}, times)
        if shutil.which("Xvfb"):
            number = str(90 + os.getpid() % 100)
            with subprocess.Popen(
                ["Xvfb", f":{number}", "-noreset", "-screen", "0", "1280x800x24"], stderr=subprocess.DEVNULL
            ) as x:
                while not Path(f"/tmp/.X11-unix/X{number}").exists():
                    time.sleep(0.02)
                met &= measure("Xvfb", {**base, "DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"}, times)
                x.terminate()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
