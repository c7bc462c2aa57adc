"""Pictures of every page of the window, to be looked at, and the contrast of their texts.

    python -m tests.screenshots FOLDER [--only PAGE]

Each page is drawn by the real window, offscreen, in two sizes, light and dark, at 100 and at 200 per cent, before simulated
GPUs and with runs and searches made for it. Exits with 1 where a text stands out from its ground by less than 4.5 to 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QDialog, QLabel, QLineEdit, QWidget

from engine.contract.cut import Cut
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system import paths
from gui.actions import MONITOR, RUNS, TRAIN
from gui.main_window import MainWindow
from gui.monitor.toolbar import VIEWS as MONITOR_VIEWS
from gui.run.header import VIEWS as RUN_VIEWS
from gui.sources.launcher import Launcher
from gui.style import theme
from tests.gui.advice.test_advice_page import an_answer
from tests.gui.compare.runs import run_of, validating
from tests.gui.cut.example import a_cut
from tests.gui.run.evaluated_run import a_looked_run
from tests.gui.run.model.written_evaluations import keep, make_dataset
from tests.support.contrast import LEAST, contrast
from tests.support.made_searches import make_search
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import compile_stub

SIZES = ((1280, 800), (2560, 1440))
SCALES = (1, 2)
SCHEMES = ("light", "dark")
SECOND = "run-curves"
"""The first page that shows a run."""
FOUND = ((0.3, 0.5, 0.6, 0.62), (0.4, 0.6, 0.7, 0.74))
PIPELINE = Job(
    dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, strategy="pipeline", devices=("cpu", "cpu")
)
TOO_LARGE = Problem(
    "batch_size",
    "U-Net with a ResNet-34 encoder needs about 41.6 GiB for a batch of 64 images of 512 x 512 pixels on 2 CPU workers, and "
    "this machine has 15.6 GiB of memory of which 9.8 GiB are free.",
    "Choose a smaller batch size or image size, or checkpoint activations.",
)


class Stage:
    """The window with all that its pages show; each public method brings a page forward and returns what to draw of it."""

    def __init__(self) -> None:
        self.window = MainWindow()
        self.window.show()
        until(lambda: self.window.workspace is not None)
        assert self.window.workspace is not None
        self.workspace = self.window.workspace
        until(lambda: len(self.workspace.history.devices) >= 8 and bool(self.workspace.run.welcome.rows))

    def furnish(self, folder: Path) -> None:
        """Makes the runs and searches that every page but the first start shows."""
        dataset = make_dataset(folder / "trees")
        self.run = a_looked_run(dataset=str(dataset))
        (self.run.checkpoints / "best.pt").write_bytes(b"weights")
        keep(self.run, dataset)
        self.others = [run_of(dataset=str(dataset), change=validating(*many)) for many in FOUND]
        make_search("flowers", 40, running=2)
        make_search("both goals", 40, goals=2)
        self.window.show_run(RunFolder(self.run.path))
        until(lambda: not self.workspace.store.loading)

    def pages(self) -> dict[str, Callable[[], QWidget]]:
        """By name, in an order in which none hides what a later one shows."""
        acts, work = self.window.acts, self.workspace
        made: dict[str, Callable[[], QWidget]] = {"first-start": lambda: self.window}
        for number, name in enumerate(RUN_VIEWS):
            made[f"run-{name.lower()}"] = partial(self.show_run, number)
        for number, name in enumerate(MONITOR_VIEWS):
            made[f"monitor-{name.lower()}"] = partial(self.show_monitor, number)
        made |= {
            "runs": self.show_runs,
            "compare": self.show_comparison,
            "searches": self.show_searches,
            "search": partial(self.show_search, "flowers"),
            "search-two-goals": partial(self.show_search, "both goals"),
            "advice": self.show_advice,
            "cut": self.show_cut,
            "cut-refused": self.show_refused_cut,
            "dataset": lambda: self.show_page(work.dataset),
        }
        for action in (acts.preferences, acts.shortcuts, acts.palette, acts.about):
            made[action.objectName()] = partial(self.show_dialog, action.trigger)
        return made | {"help": self.show_help}

    def show_page(self, page: QWidget) -> QWidget:
        self.window.header.show_page(TRAIN)
        self.window.pages.setCurrentWidget(page)
        return self.window

    def show_run(self, view: int) -> QWidget:
        self.window.header.show_page(TRAIN)
        self.workspace.run.header.tabs.setCurrentIndex(view)
        return self.window

    def show_monitor(self, view: int) -> QWidget:
        self.window.header.show_page(MONITOR)
        self.workspace.monitor.show_view(view)
        until(lambda: len(self.workspace.monitor.gpus.tiles.tiles) >= 8)
        return self.window

    def show_runs(self) -> QWidget:
        self.window.header.show_page(RUNS)
        until(lambda: self.workspace.runs.table.model().rowCount() >= 3)
        return self.window

    def show_comparison(self) -> QWidget:
        self.workspace.runs.compare_wanted.emit([run.run_id for run in (self.run, *self.others)])
        return self.window

    def show_searches(self) -> QWidget:
        self.workspace.runs.searches_wanted.emit()
        return self.window

    def show_search(self, name: str) -> QWidget:
        self.show_searches()
        page = self.workspace.searches()
        page.show_search(name)
        until(lambda: page.view.data is not None and page.view.data.search.name == name)
        until(lambda: not page.view.plots._due)
        return self.window

    def show_advice(self) -> QWidget:
        page = self.workspace.finders["strategy"]
        page.show_job(PIPELINE, [])
        page.child.cancel()
        page.child.done.emit(an_answer())
        return self.show_page(page)

    def show_cut(self) -> QWidget:
        return self._show_cut(a_cut())

    def show_refused_cut(self) -> QWidget:
        return self._show_cut(TOO_LARGE)

    def _show_cut(self, answer: Cut | Problem) -> QWidget:
        page = self.workspace.cut
        page.show_job(PIPELINE, [], {})
        page.planner.cancel()
        if isinstance(answer, Problem):
            page.planner.refused.emit(answer)
        else:
            page.planner.done.emit(answer)
        return self.show_page(page)

    def show_dialog(self, show: Callable[[], object]) -> QWidget:
        for dialog in self.window.findChildren(QDialog):
            dialog.close()
        show()
        return next(dialog for dialog in self.window.findChildren(QDialog) if dialog.isVisible())

    def show_help(self) -> QWidget:
        for dialog in self.window.findChildren(QDialog):
            dialog.close()
        self.window.show_help()
        assert self.window.help is not None
        return self.window.help


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Lets the window go on until `condition` holds; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the window did not get there")
        QTest.qWait(20)


def faint(shown: QWidget, image: QImage) -> Iterator[str]:
    """The enabled texts of `shown` that stand out too little from what lies below them in `image`, its picture.

    The text's colour is the palette's, the ground's is the commonest in the picture of the widget.
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
        if (found := contrast(ink, ground)) < LEAST:
            yield f"{found:.2f} to 1: {text[:60]!r}, {ink.name()} on {ground.name()}"


def ground_of(widget: QWidget, shown: QWidget, image: QImage) -> QColor | None:
    """The commonest colour of what is seen of `widget`, None where nothing is."""
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


def draw(folder: Path, only: str, scheme: str) -> int:
    """Draws the pages at this process's scale; returns the exit code."""
    app = QApplication(sys.argv[:1])
    theme.apply(app)
    Launcher.touch = lambda _launcher: None  # type: ignore[assignment, method-assign]  # no run will be started
    stage = Stage()
    stage.window.commands.preferences.set("theme", scheme)
    complaints: list[str] = []
    drawn = 0
    for name, show in stage.pages().items():
        if name == SECOND:
            stage.furnish(paths.home())
        if only not in (name, ""):
            continue
        shown = show()
        for width, height in SIZES if shown is stage.window else ((shown.width(), shown.height()),):
            shown.resize(width, height)
            QTest.qWait(400)  # plots are drawn a little after they are seen
            picture = shown.grab().toImage()
            scale = round(100 * picture.devicePixelRatio())
            drawn += picture.save(str(folder / f"{name}-{width}x{height}-{scheme}-{scale}.png"))
            complaints += [f"{name}, {scheme}: {each}" for each in faint(shown, picture)]
    stage.window.quit()
    for complaint in dict.fromkeys(complaints):
        print(complaint)
    return 1 if complaints or not drawn else 0


def main() -> int:
    """Draws at every scale and in every scheme, each in a process and with a home of its own; returns the exit code."""
    parser = argparse.ArgumentParser(description="Draws every page of the window.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="PAGE", help="such as run-model; every page by default")
    parser.add_argument("--scheme", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.scheme:
        return draw(asked.folder, asked.only, asked.scheme)
    codes = []
    for scale, scheme in product(SCALES, SCHEMES):
        with tempfile.TemporaryDirectory(prefix="fp") as work:
            stub = compile_stub(Path(work) / "nvml")
            MACHINES["everything"].write(stub)
            own = {"QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": str(scale), "XDG_RUNTIME_DIR": work}
            own |= {"FOOTPLATE_HOME": f"{work}/home", "FOOTPLATE_CACHE": f"{work}/cache"} | stub.environment
            again = [sys.executable, "-m", "tests.screenshots", asked.folder, "--only", asked.only, "--scheme", scheme]
            codes.append(subprocess.run(again, env=os.environ | own, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
