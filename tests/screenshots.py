"""Images of every page of the window, with checks of its texts.

    python -m tests.screenshots FOLDER [--only PAGE …] [--text PERCENT …] [--size WIDTHxHEIGHT …] [--scheme light|dark …]

The real window draws each page offscreen in every size and scheme. GPUs are simulated. Runs and searches are synthetic,
except for one run that trains. The exit code is 1 if the contrast of a text is below 4.5 to 1, if a text is cut off and
shown in full nowhere else, or if a page has a horizontal scroll bar.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PySide6.QtCore import QRect, QTimer
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QLineEdit, QWidget

from engine.system import paths
from gui.main_window import MainWindow
from gui.preferences.store import Preferences
from gui.sources.launcher import Launcher
from gui.sources.settings import Settings
from gui.style import theme
from tests.support.clipping import find_clipped_texts
from tests.support.contrast import MIN_RATIO, compute_contrast
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import compile_stub
from tests.support.stage import SECOND, Stage, process_events_until

SIZES = ("1280x800", "1440x900", "2560x1440")
TEXTS = (100, 150, 200)
SCHEMES = ("light", "dark")
PNG_QUALITY = 80
"""Compression level for PNG files that takes half as long as Qt's default."""


def find_faint_texts(page: QWidget, image: QImage) -> Iterator[str]:
    """Yield a message for each enabled text in `page` whose contrast in `image`, an image of the page, is too low.

    The text color is taken from the widget's palette, and the background from `get_background`.
    """
    kinds = (QLabel, QAbstractButton, QLineEdit, QComboBox)
    for widget in page.findChildren(QWidget):
        if not isinstance(widget, kinds) or not widget.isVisible() or not widget.isEnabled():
            continue
        text = widget.currentText() if isinstance(widget, QComboBox) else widget.text()
        ground = get_background(widget, page, image)
        if not text.strip() or ground is None:
            continue
        ink = widget.palette().color(widget.foregroundRole())
        if (found := compute_contrast(ink, ground)) < MIN_RATIO:
            yield f"{found:.2f} to 1: {text[:60]!r}, {ink.name()} on {ground.name()}"


def get_background(widget: QWidget, page: QWidget, image: QImage) -> QColor | None:
    """Return the most common color in the part of `image` that shows `widget`, or None if the widget is hidden."""
    visible = widget.visibleRegion().boundingRect()
    if visible.isEmpty():
        return None
    ratio = image.devicePixelRatio()
    corner = widget.mapTo(page, visible.topLeft())
    left, top = round(corner.x() * ratio), round(corner.y() * ratio)
    section = image.copy(left, top, round(visible.width() * ratio), round(visible.height() * ratio))
    section = section.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(section.constBits(), np.uint32).reshape(section.height(), -1)[:, : section.width()]
    colors, counts = np.unique(pixels, return_counts=True)
    return QColor.fromRgb(int(colors[counts.argmax()]))


def settle(window: QWidget) -> None:
    """Process events for 0.1 to 1 second, until the layout is stable and no timer with a short interval is active."""
    before: list[QRect] = []
    for _ in range(20):
        QTest.qWait(50)
        timers = window.findChildren(QTimer)
        is_pending = any(each.isActive() and each.isSingleShot() and each.interval() <= 50 for each in timers)
        now = [each.geometry() for each in window.findChildren(QWidget)]
        if now == before and not is_pending:
            return
        before = now


def draw_pages(options: argparse.Namespace, text_percent: int, scheme: str) -> int:
    """Open the window with one text size and color scheme, save images of its pages, and print faults of their texts.

    `options` are the parsed command-line arguments. Returns the exit code.
    """
    app = QApplication(sys.argv[:1])
    Launcher.preload = lambda _launcher: None  # type: ignore[assignment, method-assign]  # no run will be started
    settings = Settings()
    for key, value in (("text_percent", text_percent), ("theme", scheme)):
        Preferences(settings).set(key, value)
    theme.initialize(app, scheme, text_percent)
    window = MainWindow(settings)
    theme.apply(app)
    stage = Stage(window)
    process_events_until(lambda: not window.form.is_inspecting)
    found: dict[str, list[str]] = {}
    drawn = 0
    for name, show in (stage.pages() | {"run-training": stage.show_training} | stage.expanded_pages()).items():
        if name == SECOND:
            stage.create_contents(paths.home())
        if options.only and name not in options.only:
            continue
        try:
            page = show()
        except TimeoutError as error:
            found[f"{name}: {error}"] = []
            continue
        for size in options.size if page is window else (f"{page.width()}x{page.height()}",):
            page.resize(*map(int, size.split("x")))
            settle(page)
            picture = page.grab().toImage()
            drawn += picture.save(
                str(options.folder / f"{name}-{size}-{scheme}-{text_percent}.png"), quality=PNG_QUALITY
            )
            for each in (*find_faint_texts(page, picture), *find_clipped_texts(page)):
                found.setdefault(f"{name}: {each}", []).append(size)
            if page is window and f"{page.width()}x{page.height()}" != size:
                found.setdefault(f"{name}: needs {page.width()}x{page.height()}", []).append(size)
    stage.stop_training()
    window.quit()
    for fault, sizes in found.items():
        print(f"{fault}  [{', '.join(sizes)}]", flush=True)
    print(f"{text_percent}%, {scheme}: {drawn} images, {len(found)} faults", flush=True)
    return 1 if found or not drawn else 0


def main() -> int:
    """Run `draw_pages` for each text size and color scheme in a new process with a separate home folder.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(description="Draws every page of the window.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="PAGE", help="such as run-curves; every page by default")
    parser.add_argument("--text", type=int, nargs="+", default=TEXTS, metavar="PERCENT", help="sizes of texts")
    parser.add_argument("--size", nargs="+", default=SIZES, metavar="WIDTHxHEIGHT", help="sizes of the window")
    parser.add_argument("--scheme", nargs="+", default=SCHEMES, choices=SCHEMES)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.here:
        return draw_pages(options, options.text[0], options.scheme[0])
    codes = []
    for text, scheme in itertools.product(options.text, options.scheme):
        with tempfile.TemporaryDirectory(prefix="fp") as work:
            stub = compile_stub(Path(work) / "nvml")
            MACHINES["everything"].write(stub)
            separate = {"QT_QPA_PLATFORM": "offscreen", "XDG_RUNTIME_DIR": work}
            separate |= {"FOOTPLATE_HOME": f"{work}/home", "FOOTPLATE_CACHE": f"{work}/cache"} | stub.environment
            again = [sys.executable, "-m", "tests.screenshots", *sys.argv[1:]]
            again += ["--here", "--text", str(text), "--scheme", scheme]
            codes.append(subprocess.run(again, env=os.environ | separate, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
