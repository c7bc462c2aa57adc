"""Pictures of every page of the window, to be looked at, and the contrast of their texts.

    python -m tests.screenshots FOLDER [--only PAGE] [--text PERCENT]

Each page is drawn by the real window, offscreen, in two sizes, light and dark, at 100 and at 200 per cent, before
simulated GPUs, with runs and searches made for it and one run that trains. Exits with 1 where a text stands out from
its ground by less than 4.5 to 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QLineEdit, QWidget

from engine.system import paths
from gui.main_window import MainWindow
from gui.sources.launcher import Launcher
from gui.style import theme
from tests.support.contrast import MIN_RATIO, contrast
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import compile_stub
from tests.support.stage import SECOND, Stage, until

SIZES = ((1280, 800), (2560, 1440))
SCALES = (1, 2)
SCHEMES = ("light", "dark")


def faint(shown: QWidget, image: QImage) -> Iterator[str]:
    """Yield the enabled texts of `shown` with too little contrast in its `image`.

    The text color is the palette's; the background is the most common color of the widget's image.
    """
    kinds = (QLabel, QAbstractButton, QLineEdit, QComboBox)
    for widget in shown.findChildren(QWidget):
        if not isinstance(widget, kinds) or not widget.isVisible() or not widget.isEnabled():
            continue
        text = widget.currentText() if isinstance(widget, QComboBox) else widget.text()
        ground = ground_of(widget, shown, image)
        if not text.strip() or ground is None:
            continue
        ink = widget.palette().color(widget.foregroundRole())
        if (found := contrast(ink, ground)) < MIN_RATIO:
            yield f"{found:.2f} to 1: {text[:60]!r}, {ink.name()} on {ground.name()}"


def ground_of(widget: QWidget, shown: QWidget, image: QImage) -> QColor | None:
    """Return the most common color of the visible part of `widget`; None if it is hidden."""
    seen = widget.visibleRegion().boundingRect()
    if seen.isEmpty():
        return None
    ratio = image.devicePixelRatio()
    corner = widget.mapTo(shown, seen.topLeft())
    left, top = round(corner.x() * ratio), round(corner.y() * ratio)
    part = image.copy(left, top, round(seen.width() * ratio), round(seen.height() * ratio))
    part = part.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(part.constBits(), np.uint32).reshape(part.height(), -1)[:, : part.width()]
    colors, counts = np.unique(pixels, return_counts=True)
    return QColor.fromRgb(int(colors[counts.argmax()]))


def draw(folder: Path, only: str, scheme: str, text_percent: int) -> int:
    """Draws the pages at this process's scale; returns the exit code."""
    app = QApplication(sys.argv[:1])
    theme.apply(app)
    Launcher.preload = lambda _launcher: None  # type: ignore[assignment, method-assign]  # no run will be started
    stage = Stage(MainWindow())
    for setting, value in (("theme", scheme), ("text_percent", text_percent)):
        stage.window.commands.preferences.set(setting, value)
    until(lambda: not stage.window.form.checking)
    complaints: list[str] = []
    drawn = 0
    for name, show in (stage.pages() | {"run-training": stage.show_training} | stage.unfolded()).items():
        if name == SECOND:
            stage.furnish(paths.home())
        if only not in (name, ""):
            continue
        shown = show()
        for width, height in SIZES if shown is stage.window else ((shown.width(), shown.height()),):
            shown.resize(width, height)
            for _turn in range(8):  # plots are drawn a little after they are seen, and may change the layout once more
                QTest.qWait(50)
            picture = shown.grab().toImage()
            scale = round(100 * picture.devicePixelRatio())
            drawn += picture.save(str(folder / f"{name}-{width}x{height}-{scheme}-{scale}.png"))
            complaints += [f"{name}, {scheme}: {each}" for each in faint(shown, picture)]
    stage.stop_training()
    stage.window.quit()
    for complaint in dict.fromkeys(complaints):
        print(complaint)
    return 1 if complaints or not drawn else 0


def main() -> int:
    """Draws at every scale and in every scheme, each in a process and with a home of its own; returns the exit code."""
    parser = argparse.ArgumentParser(description="Draws every page of the window.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="PAGE", help="such as run-curves; every page by default")
    parser.add_argument("--text", type=int, default=100, metavar="PERCENT", help="the size of texts")
    parser.add_argument("--scheme", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.scheme:
        return draw(asked.folder, asked.only, asked.scheme, asked.text)
    codes = []
    for scale, scheme in product(SCALES, SCHEMES):
        with tempfile.TemporaryDirectory(prefix="fp") as work:
            stub = compile_stub(Path(work) / "nvml")
            MACHINES["everything"].write(stub)
            own = {"QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": str(scale), "XDG_RUNTIME_DIR": work}
            own |= {"FOOTPLATE_HOME": f"{work}/home", "FOOTPLATE_CACHE": f"{work}/cache"} | stub.environment
            again = [sys.executable, "-m", "tests.screenshots", *sys.argv[1:], "--scheme", scheme]
            codes.append(subprocess.run(again, env=os.environ | own, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
