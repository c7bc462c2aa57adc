"""Hostile names for classes, runs, processes and GPUs, on every page of the real window."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
import tomli_w
from msgspec import structs
from PySide6.QtCore import QAbstractItemModel, QModelIndex, QPoint, Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QLabel,
    QMessageBox,
    QToolTip,
    QWidget,
)
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport, Example, SplitReport, UnreadableImage
from engine.contract.devices import GpuProcess, Snapshot, Xid
from engine.contract.events import (
    AnyEvent,
    ClassMeasures,
    LogLine,
    Outcome,
    PhaseChanged,
    Planned,
    Predicted,
    RunFinished,
    RunStarted,
    Validation,
    Warned,
)
from engine.contract.images import LegendEntry
from engine.contract.problems import Problem
from engine.contract.recipes import MAX_CHARACTERS, recipe_path
from engine.data.formats.shared.assembly import MAX_LETTERS
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import change_notes
from engine.system.plain_text import MAX_SHOWN_CHARS, shorten_texts
from gui.main_window import MainWindow
from gui.monitor.toolbar import VIEWS
from gui.pages import MONITOR, RUNS, TRAIN
from gui.sources.launcher import Launcher
from gui.widgets.column_model import select_row
from gui.widgets.labels import RichLabel
from tests.attacks.hostile_names import NAMES, set_trap
from tests.gui.conftest import OFFSCREEN_NOISE
from tests.gui.conftest import styled as styled  # noqa: PLC0414  (a fixture)
from tests.gui.monitor.machines import deliver_snapshot
from tests.gui.monitor.watching import full_gpu
from tests.gui.run.evaluated_run import CLASSES, draw, events
from tests.gui.sources.devices.snapshots import snapshot
from tests.gui.sources.written_runs import job, write
from tests.gui.split_points.example import make_split
from tests.support.cases import mark_long_cases

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.qt_log_ignore(OFFSCREEN_NOISE),
    pytest.mark.skipif(sys.platform != "linux", reason="FIFOs are Linux' own here"),
]

MAX_S = 0.1
"""Maximum time in seconds that hostile names may block the GUI thread longer than ordinary names."""
MAX_LOADED_S = 1.0
"""Limit in place of `MAX_S` for the short test, which runs while other tests use the CPU."""
MAX_PATH_BYTES = 4096
"""Maximum length of a path in Linux (PATH_MAX)."""
PAGES = ("devices", "runs", "job")
"""Groups of pages. They are methods of `PageVisit`."""
STEPS = 8
START = 1_700_000_000.0


class PageVisit:
    """Visit to the window's pages, each of which is made to show `names` as the names of runs, files and other things.

    `took` maps the name of each step to its CPU time in seconds.
    """

    def __init__(self, window: MainWindow, qtbot: QtBot, names: Sequence[str]) -> None:
        assert window.workspace is not None
        self.window, self.workspace, self.qtbot, self.names = window, window.workspace, qtbot, tuple(names)
        self.took: dict[str, float] = {}

    @contextmanager
    def time_step(self, name: str) -> Iterator[None]:
        started = time.thread_time()
        yield
        QApplication.processEvents()
        self.window.grab()
        self.took[name] = max(self.took.get(name, 0.0), time.thread_time() - started)

    def devices(self) -> None:
        hosts, monitor = self.workspace.hosts, self.workspace.monitor
        self.window.header.show_page(MONITOR)
        for second in range(3):
            fed = make_snapshot(self.names, second)
            with self.time_step(f"snapshot {second}"):
                deliver_snapshot(hosts, fed)
            with self.time_step(f"another host's snapshot {second}"):
                deliver_snapshot(hosts, structs.replace(fed, host=self.names[0], gpus=fed.gpus[:1]), "box")
                hosts.error_changed.emit("box", self.names[0] if second == 1 else "")
        for number, view in enumerate(VIEWS):
            with self.time_step(view):
                monitor.show_view(number)
            self._show_tool_tips()
        for gpu in fed.gpus:
            with self.time_step("detail"):
                monitor.show_gpu(gpu.uuid)
        with self.time_step("compact"):
            monitor.show_view(0)
            monitor.bar.compact.click()
        self._show_tool_tips()
        monitor.bar.compact.click()

    def runs(self) -> None:
        runs = [make_hostile_run(name, None if number % 2 else "failed") for number, name in enumerate(self.names)]
        for run, name in zip(runs, self.names, strict=True):
            change_notes(run.path, tags=(name,), text=name)
        page = self.workspace.runs
        self.window.header.show_page(RUNS)
        page.refresh()
        self.qtbot.waitUntil(lambda: all(page.model.find(run.run_id) for run in runs))
        with self.time_step("runs"):
            page.table.selectAll()
        for row in range(page.model.rowCount()):
            with self.time_step("details"):
                select_row(page.table, row)
        with self.time_step("deleting"):
            page.deleting.ask(page.selected())
        self._show_tool_tips()
        page.deleting.dismiss()
        with self.time_step("comparing"):
            page.compare_requested.emit([run.run_id for run in runs])
        compare = self.workspace.get_page("compare")
        assert compare is not None
        self.qtbot.waitUntil(lambda: len(compare.runs) == len(runs))
        with self.time_step("compared"), compare.curves.show_names():
            self.window.grab()
        self._show_tool_tips()
        for run in runs:
            self._run(run)

    def _run(self, run: RunFolder) -> None:
        with self.time_step("opening"):
            self.window.show_run(run)
        self.qtbot.waitUntil(lambda: not self.workspace.session.loading)
        tabs = self.workspace.run.header.tabs
        for view in (*range(1, tabs.count()), 0):
            with self.time_step(f"run {tabs.tabText(view)}"):
                tabs.setCurrentIndex(view)
            self._show_tool_tips()

    def job(self) -> None:
        self._dataset()
        self._split_points()
        self._form()

    def _dataset(self) -> None:
        self.window.header.show_page(TRAIN)
        with self.time_step("card"):
            self.window.form.card.show_report(make_report(self.names))
        with self.time_step("dataset"):
            self.workspace.get_page("dataset").show_report(make_report(self.names))
            self.window.pages.setCurrentWidget(self.workspace.get_page("dataset"))
        for place in range(len(self.names)):
            with self.time_step("example"):
                self.workspace.get_page("dataset").choose(place)
        self._show_tool_tips()

    def _split_points(self) -> None:
        split, names = make_split(), cycle(self.names)
        segments = tuple(
            structs.replace(each, module=name, first_module=name)
            for each, name in zip(split.segments, names, strict=False)
        )
        with self.time_step("split_points"):
            self.workspace.get_page("split_points")._show_split(structs.replace(split, segments=segments))
            self.window.pages.setCurrentWidget(self.workspace.get_page("split_points"))
        self._show_tool_tips()

    def _form(self) -> None:
        form = self.window.form
        self.window.header.show_page(TRAIN)
        for name in self.names:
            with self.time_step("message"):
                self.window.message.show_message(name)
            with self.time_step("problems"):
                form.set_start_problems([Problem(field, name, name) for field in ("dataset", "model", "")])
            with self.time_step("consent"):
                form.consent.ask(f"/models/{name[:MAX_LETTERS]}", "0" * 64, agreed=False)
            with self.time_step("recipe"):
                self._offer_recipe(name)
        with self.time_step("box"):
            form.recipes._ask_to_delete()
        self._show_tool_tips()
        for box in form.findChildren(QMessageBox):
            box.close()
        form.consent.ask("", None, agreed=False)
        self.window.message.hide()

    def _offer_recipe(self, name: str) -> None:
        line = name[:MAX_CHARACTERS]
        recipe = {"title": line, "about": line, "source": line, "tasks": ["classification"], "set": {}}
        recipe_path("evil").parent.mkdir(parents=True, exist_ok=True)
        recipe_path("evil").write_text(tomli_w.dumps(recipe))
        self.window.form.recipes.reload()
        self.window.form.set_field("recipe", "evil")

    def _show_tool_tips(self) -> None:
        """Show all tool tips that contain a name, and check that no label interprets its text as rich text."""
        tips = {widget.toolTip(): widget for widget in self.window.findChildren(QWidget) if widget.isVisible()}
        for view in self.window.findChildren(QAbstractItemView):
            if view.isVisible():
                tips |= dict.fromkeys(list_cell_tips(view.model()), view)
        for text, widget in tips.items():
            if any(name in text for name in self.names):
                started = time.thread_time()
                QToolTip.showText(QPoint(5, 5), text, widget)
                self.took["tip"] = max(self.took.get("tip", 0.0), time.thread_time() - started)
        drawn_as_rich_text = [
            label.text()
            for label in QApplication.allWidgets()
            if isinstance(label, QLabel)
            and label.isVisible()
            and label.textFormat() != Qt.TextFormat.PlainText
            and not isinstance(label, RichLabel)
        ]
        assert drawn_as_rich_text == []
        QToolTip.hideText()


def list_cell_tips(model: QAbstractItemModel) -> set[str]:
    """Return the tool tips of the cells in the first 20 rows of `model` and of their headers."""
    cells = [model.index(row, column) for row in range(20) for column in range(40) if model.hasIndex(row, column)]
    texts = {model.data(cell, Qt.ItemDataRole.ToolTipRole) for cell in cells}
    for way, section in ((Qt.Orientation.Horizontal, QModelIndex.column), (Qt.Orientation.Vertical, QModelIndex.row)):
        texts |= {model.headerData(section(cell), way, Qt.ItemDataRole.ToolTipRole) for cell in cells}
    return {tip for tip in texts if isinstance(tip, str)}


def make_snapshot(names: Sequence[str], second: int) -> Snapshot:
    """Make a snapshot with an overheated GPU per name, which has Xid errors.

    The GPU and its processes have this name. `second` is the number of the snapshot. Snapshots after number 0 have a
    further, newer Xid error.
    """
    names = [" ".join(name.split())[:MAX_SHOWN_CHARS] for name in names]
    gpus = tuple(
        structs.replace(
            full_gpu(n, temperature_c=99.0),
            name=name,
            xids=(Xid(START, 31), *((Xid(START + second, 79),) if second else ())),
            processes=tuple(
                GpuProcess(100 + p, memory_used_bytes=1 << 30, user=name, name=name, command=name, ancestors=(1,))
                for p in (2 * n, 2 * n + 1)
            ),
        )
        for n, name in enumerate(names)
    )
    return structs.replace(snapshot(*gpus, time=START + 5 * second), host=names[0])


def make_hostile_run(name: str, outcome: Outcome | None) -> RunFolder:
    """Create a run in which all texts contain `name`, with images of its predictions. Without `outcome`, it didn't end."""
    chosen = job(name=name[:120], dataset=f"/data/{name}"[:MAX_PATH_BYTES])  # runs with longer names can't be read
    run = create_run(chosen)
    renamed = [_rename_event(event, name, outcome) for event in events(chosen, STEPS)]
    write(run.events_file, [event for event in renamed if event is not None])
    os.utime(run.job_file, (0, 0))  # an old run without a final event doesn't count as starting
    for event in renamed:
        for sample in event.samples if isinstance(event, Predicted) else ():
            draw(run.path / sample.truth_png, "#00ff00")
            draw(run.path / sample.prediction_png, "#ff0000")
    return run


def _rename_event(event: AnyEvent, name: str, outcome: Outcome | None) -> AnyEvent | None:  # noqa: PLR0911  (one an event)
    match event:
        case RunStarted():
            devices = tuple(structs.replace(device, name=name) for device in event.devices)
            return structs.replace(event, devices=devices, environment={"torch": name, name: name})
        case PhaseChanged(phase="preparing"):
            return structs.replace(event, detail=name)
        case Planned():
            return structs.replace(event, classes=(name, f"{name}2", "cedar"))
        case Warned():
            return structs.replace(event, message=name)
        case LogLine():
            return structs.replace(event, text=name)
        case Validation():
            return structs.replace(event, measures=event.measures | {name: 0.5})
        case ClassMeasures():
            return structs.replace(event, measures=event.measures | {name: (0.5, 0.5, 0.5)})
        case Predicted():
            samples = tuple(
                structs.replace(each, name=name, truth_words=name, prediction_words=name) for each in event.samples
            )
            return structs.replace(event, samples=samples, legend=tuple(LegendEntry(name, "#ff0000") for _ in CLASSES))
        case RunFinished():
            return structs.replace(event, outcome=outcome, cause=name) if outcome is not None else None
    return event


def make_report(names: Sequence[str]) -> DatasetReport:
    """Make a dataset report with a class, a problem, an example and an unreadable file for each name."""
    classes = tuple(name[:MAX_LETTERS] for name in names)
    counts = dict.fromkeys(classes, 4)
    shortened: DatasetReport = shorten_texts(
        DatasetReport(
            folder=f"/data/{names[0]}"[:MAX_PATH_BYTES],
            format="imagefolder",
            classes=classes,
            splits=(SplitReport("train", counts), SplitReport(names[0], counts)),
            examples=tuple(Example(name, "train", b"no image", place) for place, name in enumerate(classes)),
            legend=tuple(LegendEntry(name, "#ff0000") for name in classes),
            unreadable=tuple(UnreadableImage(name, name) for name in names),
            unreadable_count=len(names),
            problems=tuple(Problem("dataset", name, name, "warning") for name in names),
        )
    )
    return shortened


@pytest.fixture
def window(styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[MainWindow]:
    """Open the main window without samplers, and add the host "box". Tests deliver synthetic snapshots."""
    monkeypatch.setattr(Launcher, "preload", lambda _launcher: None)
    main_window = MainWindow()
    qtbot.addWidget(main_window)
    with qtbot.waitSignal(main_window.completed):
        main_window.show()
    assert main_window.workspace is not None
    main_window.workspace.hosts.stop()
    main_window.workspace.hosts.add("box")
    yield main_window
    main_window.close()


@pytest.fixture
def measure_hostile_names(
    pages: str, window: MainWindow, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[str]], dict[str, float]]:
    """Return a function that opens the group of pages `pages`, first with ordinary names and then with hostile names.

    The function returns how many more CPU seconds each step takes with hostile names, by the step's name. It fails if
    a hostile name is executed.
    """
    monkeypatch.chdir(tmp_path)

    def measure(names: Sequence[str]) -> dict[str, float]:
        ordinary = [f"flowers {number}" for number in range(len(names))]
        usual, hostile = PageVisit(window, qtbot, ordinary), PageVisit(window, qtbot, names)
        getattr(PageVisit(window, qtbot, ordinary[:1]), pages)()  # creates the pages, which takes longer
        getattr(usual, pages)()
        with set_trap(tmp_path) as sprung:
            getattr(hostile, pages)()
            assert not sprung.exists()
        return {where: took - usual.took.get(where, 0.0) for where, took in hostile.took.items()}

    return measure


@pytest.mark.parametrize("pages", mark_long_cases(PAGES, everyday=["job"]))
def test_hostile_name_is_plain_text_and_fast(
    measure_hostile_names: Callable[[Sequence[str]], dict[str, float]],
) -> None:
    longer = measure_hostile_names([NAMES["image"], NAMES["endless"]])
    assert {where: took for where, took in longer.items() if took > MAX_LOADED_S} == {}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pages", PAGES)
def test_all_hostile_names_are_plain_text_and_fast(
    measure_hostile_names: Callable[[Sequence[str]], dict[str, float]],
) -> None:
    longer = measure_hostile_names(list(NAMES.values()))
    assert {where: took for where, took in longer.items() if took > MAX_S} == {}
