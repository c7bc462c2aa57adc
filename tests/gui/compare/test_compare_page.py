"""Page that compares runs."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFont, QFontMetrics, QImage
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, RunFinished, RunStarted, StepMetrics, Validation, Waiting
from engine.runs.folder import RunFolder
from gui.compare import page as page_module
from gui.compare.legend import Legend
from gui.compare.page import ComparePage
from gui.compare.table import ITEM_PADDING
from gui.compare.table_model import CompareModel
from gui.sources.run_list import RunList
from gui.style import theme
from gui.widgets.column_model import select_row
from tests.gui.compare.runs import load_run, make_accuracy_change, make_run
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, supervise_here, write
from tests.support.painted import draw_icon
from tests.support.plots import get_vertical_range
from tests.support.widgets import OpenWindow, ShowWidget, join_visible_texts


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> ComparePage:
    created = ComparePage(RunList())
    qtbot.addWidget(created, before_close_func=lambda page: page.close_work())
    created.resize(1000, 800)
    created.show()
    return created


@pytest.fixture
def show(page: ComparePage, qtbot: QtBot) -> Callable[..., ComparePage]:
    def show_runs(*runs: RunFolder) -> ComparePage:
        with qtbot.waitSignal(page.loaded):
            page.show_runs([run.run_id for run in runs])
        return page

    return show_runs


def count_points(page: ComparePage, plot: str) -> dict[str, int]:
    """Return the number of points in each line of a plot. Keys are the numbers of the runs on the page."""
    return {key: len(line.x) for key, line in page.curves.plots[plot]._lines.items()}


def test_compare_page_overlays_curves(show: Callable[..., ComparePage], qtbot: QtBot) -> None:
    runs = (make_run(40), make_run(60), make_run(20))
    page = show(*runs, runs[0])
    assert page.run_ids == [run.run_id for run in runs]
    titles = [plot.title for plot in page.curves.ordered_plots]
    assert titles[:4] == ["Training loss", "Validation loss", "Training accuracy", "Validation top-1 accuracy"]
    assert titles[-2:] == ["Speed", "Learning rate"]
    styles = {
        key: plot._lines["1"].style for key, plot in page.curves.plots.items() if plot in page.curves.ordered_plots
    }
    assert {key for key, style in styles.items() if style.smooth} == {"loss", "accuracy", "images_per_second"}
    assert {key for key, style in styles.items() if style.markers} == {key for key in styles if "validation" in key}
    for key in ("images_per_second", "learning_rate"):
        page.curves.plots[key].redraw()
        assert get_vertical_range(page.curves.plots[key])[0] <= 0
    for width, columns in ((500, 1), (1000, 2), (2200, 3)):
        page.resize(width, 800)
        qtbot.waitUntil(lambda count=columns: len({plot.x() for plot in page.curves.ordered_plots}) == count)
    assert count_points(page, "loss") == {"1": 40, "2": 60, "3": 20}
    assert count_points(page, "validation/top1") == {"1": 4, "2": 4, "3": 4}
    assert page.curves.group.extent == (0, 60)
    page.controls.axis.setCurrentIndex(1)
    assert (page.curves.group.axis, page.curves.group.extent) == ("epochs", (0, 4))
    page.controls.axis.setCurrentIndex(2)
    assert page.curves.group.axis == "elapsed"
    assert page.curves.group.extent == (0, pytest.approx(6.0, abs=1e-3))
    backwards = sorted(page.run_ids, reverse=True)
    page.show_runs(backwards)
    assert page.run_ids == backwards


def test_legend_hides_runs_which_keep_their_color(show: Callable[..., ComparePage], qtbot: QtBot) -> None:
    page = show(make_run(40), make_run(60))
    before = page.curves.plots["loss"]._lines["2"].style.color()
    page.legend.boxes[0].setFocus()
    qtbot.keyClick(page.legend.boxes[0], Qt.Key.Key_Space)
    assert count_points(page, "loss") == {"2": 60}
    assert page.curves.plots["loss"]._lines["2"].style.color() == before
    assert page.model.columnCount() == 2
    page.legend.add_run(page.runs[0])
    assert page.legend.checked == {1}
    qtbot.mouseClick(page.legend.none, Qt.MouseButton.LeftButton)
    assert count_points(page, "loss") == {}
    qtbot.mouseClick(page.legend.all, Qt.MouseButton.LeftButton)
    assert count_points(page, "loss") == {"1": 40, "2": 60}


def test_legend_is_as_high_as_up_to_three_rows_of_runs(show_widget: ShowWidget) -> None:
    legend, run, heights = show_widget(Legend(), 150, 300), load_run(make_run(4)), []
    for series in range(5):
        legend.add_run(dataclasses.replace(run, series=series))
        heights.append(legend.sizeHint().height())
    assert heights[0] < heights[1] < heights[2] <= heights[3] == heights[4] < 4 * heights[0]


def test_ninth_run_is_dashed(show: Callable[..., ComparePage]) -> None:
    page = show(*(make_run(4) for _ in range(9)))
    first, ninth = (page.curves.plots["loss"]._lines[number].style for number in ("1", "9"))
    assert first.color() == ninth.color()
    assert (first.dashed, ninth.dashed) == (False, True)
    swatches = [draw_icon(page.legend.boxes[series].icon()) for series in (0, 8)]
    gaps = [
        any(image.pixelColor(x, image.height() // 2).alpha() == 0 for x in range(image.width())) for image in swatches
    ]
    assert gaps == [False, True]
    assert len({page.curves.plots["loss"]._lines[str(n)].style.color() for n in range(1, 9)}) == 8


def test_curve_controls_apply_to_later_runs(page: ComparePage, show: Callable[..., ComparePage]) -> None:
    page.controls.log_scale.setChecked(True)
    show(make_run(40), make_run(40))
    assert page.curves.plots["loss"]._log
    assert page.curves.plots["validation/loss"]._log
    page.controls.log_scale.setChecked(False)
    assert not page.curves.plots["validation/loss"]._log
    page.controls.smoothing.setValue(90)
    line = page.curves.plots["loss"]._lines["1"]
    assert not (line.smoothed == line.y).all()
    line = page.curves.plots["validation/loss"]._lines["1"]
    assert (line.smoothed == line.y).all(), "validations aren't smoothed"
    page.legend.boxes[0].setChecked(False)
    page.legend.boxes[0].setChecked(True)
    line = page.curves.plots["loss"]._lines["1"]
    assert not (line.smoothed == line.y).all()
    page.controls.log_scale.setChecked(True)
    assert page.curves.plots["validation/loss"]._log
    assert not page.curves.plots["validation/top1"]._log


def test_compare_page_names_deleted_run(page: ComparePage, qtbot: QtBot) -> None:
    intact, deleted = make_run(40), make_run(40)
    shutil.rmtree(deleted.path)
    with qtbot.waitSignal(page.loaded):
        page.show_runs([deleted.run_id, intact.run_id])
    assert f"{deleted.run_id} can no longer be read" in join_visible_texts(page)
    assert [run.summary.run_id for run in page.runs.values()] == [intact.run_id]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read active runs again after at most 10 ms."""
    monkeypatch.setattr(page_module, "_REFRESH_MS", 1)


def is_waiting(page: ComparePage) -> bool:
    """Return True if the page will read active runs again after a pause of at least five seconds."""
    return any(timer.interval() >= 5000 for timer in page.findChildren(QTimer) if timer.isActive())


@pytest.mark.usefixtures("short_pauses")
def test_compare_page_keeps_run_that_was_deleted_later(show: Callable[..., ComparePage], qtbot: QtBot) -> None:
    active, ended = make_run(40, None), make_run(40)
    page = show(supervise_here(active), ended)
    shutil.rmtree(active.path)
    qtbot.waitUntil(lambda: f"{active.run_id} can no longer be read" in join_visible_texts(page))
    assert "Compare 2 runs" in join_visible_texts(page)
    with qtbot.assertNotEmitted(page.loaded, wait=100):
        page.hide()
        page.show()  # no active run is left that would be read again
    assert count_points(page, "loss") == {"1": 40, "2": 40}


def test_compare_page_names_damaged_run(
    show: Callable[..., ComparePage],
) -> None:
    first, damaged, last = make_run(40), make_run(40, None), make_run(20)
    damaged.job_file.write_text(NESTED_TOO_DEEP)
    page = show(first, damaged, last)
    assert damaged.run_id in join_visible_texts(page)
    assert "is not valid TOML" in join_visible_texts(page)
    assert [run.summary.run_id for run in page.runs.values()] == [first.run_id, last.run_id]
    show(first)
    assert damaged.run_id not in join_visible_texts(page)


def test_compare_page_shows_job_of_silent_run(show: Callable[..., ComparePage]) -> None:
    silent = make_run(40, model="vit_b_16")
    silent.events_file.unlink()
    page = show(make_run(40), silent)
    assert count_points(page, "loss") == {"1": 40}
    texts = {row.title: row.texts for row in page.model.rows if row.texts}
    assert (texts["Model"][1], texts["Steps"][1]) == ("ViT-B/16", "–")
    page.controls.axis.setCurrentIndex(1)
    assert count_points(page, "loss") == {"1": 40}


def add_metric(event: AnyEvent) -> None:
    if isinstance(event, Validation):
        event.measures = {**event.measures, "extra": 0.5}


def test_compare_page_replaces_runs(show: Callable[..., ComparePage], qtbot: QtBot) -> None:
    page = show(make_run(40, change=add_metric), make_run(60))
    extra = page.curves.plots["validation/extra"]
    assert extra in page.curves.ordered_plots
    show(make_run(30))
    assert count_points(page, "loss") == {"1": 30}
    assert list(page.legend.boxes) == [0]
    assert extra not in page.curves.ordered_plots

    def are_in_order() -> bool:
        positions = [(plot.y(), plot.x()) for plot in page.curves.ordered_plots]
        return positions == sorted({*positions})

    qtbot.waitUntil(are_in_order)


@pytest.mark.usefixtures("short_pauses")
def test_compare_page_rereads_active_run(show: Callable[..., ComparePage], qtbot: QtBot) -> None:
    active, ended = make_run(40, None), make_run(40)
    page = show(supervise_here(active), ended)
    job = active.job_file.read_text()
    active.job_file.write_text(NESTED_TOO_DEEP)
    qtbot.waitUntil(lambda: active.run_id in join_visible_texts(page))
    active.job_file.write_text(job)
    qtbot.waitUntil(lambda: active.run_id not in join_visible_texts(page))
    select_row(page.table, 1)
    step = StepMetrics(
        time=2e9, epoch=4, step=41, loss=0.1, learning_rate=0.1, images_per_second=1, data_wait_s=0, compute_s=0
    )
    end = RunFinished(time=2e9 + 1, outcome="completed")
    write(active.events_file, [step, end], 9000)
    qtbot.waitUntil(lambda: count_points(page, "loss") == {"1": 41, "2": 40})
    assert page.table.selectionModel().hasSelection()


def test_compare_page_rereads_queued_run(show: Callable[..., ComparePage]) -> None:
    queued = supervise_here(make_run(0, None))
    write(queued.events_file, [Waiting(time=2e9, position=1)], 9000)
    assert queued.state() == "waiting"
    assert not is_waiting(show(make_run(40)))
    assert is_waiting(show(queued, make_run(40)))


def test_compare_model_is_consistent_and_stars_best(qtmodeltester: ModelTester, styled: QApplication) -> None:
    model = CompareModel()
    qtmodeltester.check(model)
    runs = [
        load_run(make_run(40, "completed", make_accuracy_change(0.5, 0.6, 0.7, top)), index)
        for index, top in enumerate((0.6, 0.9))
    ]
    runs[1] = dataclasses.replace(runs[1], summary=structs.replace(runs[1].summary, cause="A cable."))
    model.show_runs(runs)
    qtmodeltester.check(model)
    row = next(n for n, each in enumerate(model.rows) if each.title == "Best top-1 accuracy")
    assert model.index(row, 1).data() == "★ 90.00%  (epoch 4)"
    assert model.index(row, 1).data(Qt.ItemDataRole.AccessibleTextRole).endswith("the best")
    assert model.index(row, 1).data(Qt.ItemDataRole.FontRole).bold()
    assert model.index(row, 0).data(Qt.ItemDataRole.FontRole) is None
    assert model.index(row, 0).data() == "70.00%  (epoch 3)"
    heading = next(n for n, each in enumerate(model.rows) if each.heading)
    assert model.flags(model.index(heading, 0)) == Qt.ItemFlag.NoItemFlags
    tip, font = Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.FontRole
    for section, run in enumerate(runs):
        assert model.headerData(section, Qt.Orientation.Horizontal) == run.title
        assert model.headerData(section, Qt.Orientation.Horizontal, tip) == f"{run.title}\n{run.summary.folder}"
    for section, each in enumerate(model.rows):
        data = [model.headerData(section, Qt.Orientation.Vertical, role) for role in (Qt.ItemDataRole.DisplayRole, tip)]
        assert data == [each.title, each.help or None]
        assert (model.headerData(section, Qt.Orientation.Vertical, font) is not None) == each.heading
    state = next(n for n, each in enumerate(model.rows) if each.title == "State")
    assert [model.index(state, column).data(tip) for column in (0, 1)] == [None, "A cable."]


def delay(event: AnyEvent) -> None:
    """Let a run wait for a minute before its first step, so that times differ from epochs."""
    if not isinstance(event, RunStarted):
        event.time += 60


@pytest.mark.usefixtures("german")  # files have the same format in every language
def test_compare_page_saves_csv(show: Callable[..., ComparePage], qtbot: QtBot, tmp_path: Path) -> None:
    first, second, hidden = (
        make_run(40, learning_rate=0.1, name="one, and only", change=delay),
        make_run(20, learning_rate=0.2, change=add_metric),
        make_run(20, learning_rate=0.3),
    )
    page = show(first, second, hidden)
    page.legend.boxes[2].setChecked(False)
    with qtbot.waitSignal(page.message) as signal:
        page.save_curves(tmp_path / "curves.csv")
    assert signal.args[1] == "info"
    with (tmp_path / "curves.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 40 + 4 + 20 + 4
    assert rows[0]["name"] == "one, and only"
    assert [row["step"] for row in rows[:40]] == [str(n) for n in range(1, 41)]
    assert float(rows[39]["epoch"]) == 4
    assert float(rows[39]["time_s"]) == 64
    assert rows[0]["validation_top1"] == ""
    assert (rows[40]["validation_top1"], rows[40]["loss"], rows[40]["step"]) == ("0.8", "", "10")
    assert [row["validation_extra"] for row in rows] == [""] * 64 + ["0.5"] * 4
    page.controls.acts["table"].trigger()
    with qtbot.waitSignal(page.message):
        page.findChild(QFileDialog).fileSelected.emit(str(tmp_path / "table.csv"))
    with (tmp_path / "table.csv").open(newline="") as stream:
        table = {row[0]: row[1:] for row in csv.reader(stream)}
    assert table[""] == [first.run_id, second.run_id, hidden.run_id]
    assert table["Learning rate"] == ["0.1", "0.2", "0.3"]


def test_compare_page_saves_image(show: Callable[..., ComparePage], qtbot: QtBot, tmp_path: Path) -> None:
    page = show(make_run(40, name="r&d " + "x" * 60))
    (box,) = page.legend.boxes.values()
    assert ("r&&d" in box.text(), box.text()[-1], page.controls.show_all.isEnabled()) == (True, "…", False)
    page.curves.group.zoom(0.5)
    assert page.controls.show_all.isEnabled()
    with qtbot.waitSignal(page.message):
        page.save_image(tmp_path / "curves.png")
    assert QImage(str(tmp_path / "curves.png")).height() >= page.curves.height()
    assert "r&d" not in join_visible_texts(page.curves)
    assert "identical" not in page.model.rows[-1].title
    page.show_runs([])
    assert not page.controls.save.isEnabled()
    assert page.model.rowCount() == 0


def test_runs_page_opens_comparison_which_escape_leaves(open_window: OpenWindow, qtbot: QtBot) -> None:
    runs = [make_run(40, name=name) for name in ("left", "right")]
    window = open_window()
    qtbot.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.ControlModifier)
    workspace = window.workspace
    workspace.runs.compare_requested.emit([run.run_id for run in runs])
    page = window.pages.currentWidget()
    assert isinstance(page, ComparePage)
    qtbot.waitUntil(lambda: len(page.runs) == 2)
    assert {run.summary.run_id for run in page.runs.values()} == {run.run_id for run in runs}
    qtbot.keyClick(page, Qt.Key.Key_Escape)
    assert window.pages.currentWidget() is workspace.runs


def find_elided_values(page: ComparePage) -> list[str]:
    """Return the texts in the comparison table that are too wide for their cells."""
    model, table = page.model, page.table
    cells = [model.index(row, column) for row in range(model.rowCount()) for column in range(model.columnCount())]
    elided = []
    for cell in cells:
        font = QFont(table.font())
        font.setBold(cell.data(Qt.ItemDataRole.FontRole) is not None)
        width = QFontMetrics(font).horizontalAdvance(cell.data() or "")
        if width > table.columnWidth(cell.column()) - 2 * ITEM_PADDING:
            elided.append(cell.data())
    return elided


@pytest.mark.usefixtures("normal_text")
@pytest.mark.parametrize("is_live", [True, False])
def test_comparison_columns_fit_values_of_large_texts(
    page: ComparePage, show: Callable[..., ComparePage], is_live: bool
) -> None:
    if not is_live:
        theme.choose("system", 200)
    show(*(make_run(40, change=make_accuracy_change(0.5, 0.6, 0.7, best)) for best in (0.7, 0.8)))
    theme.choose("system", 200)
    assert page.model.rows
    assert find_elided_values(page) == []


def test_comparison_columns_follow_longer_values(page: ComparePage, show: Callable[..., ComparePage]) -> None:
    show(make_run(40), make_run(60))
    wide, narrow = page.table.columnWidth(0), 60
    page.table.setColumnWidth(1, narrow)
    row = next(row for row in page.model.rows if row.title == "State")
    page.model.rows[page.model.rows.index(row)] = dataclasses.replace(
        row, texts=("Interrupted by a power cut", "Completed")
    )
    page.model.dataChanged.emit(page.model.index(0, 0), page.model.index(0, 1))
    assert page.table.columnWidth(0) > wide
    assert page.table.columnWidth(1) == narrow
