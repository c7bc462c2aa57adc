"""Plots, table and texts of a small search whose trials have pairwise different values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyqtgraph as pg
import pytest
from msgspec import structs
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication, QLabel, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.search import Choices, Goal, Range, SearchState, Status, TrialRow
from engine.runs.searches import SearchFolder
from gui.search.plot_panel import ParallelCoordinatesPlot, SearchPlots, TwoFieldPlot
from gui.search.plots import (
    HistoryPlot,
    ImportancePlot,
    ParetoPlot,
    TrialCurves,
    TrialPlot,
    compute_axis_range,
    describe_best,
    find_goal_bounds,
)
from gui.search.search_view import SearchView
from gui.sources.searches import SearchData, to_search_data
from gui.style import theme
from tests.support.made_searches import SECONDS, TOP1, make_search_config
from tests.support.widgets import ShowWidget

LOSS = Goal(measure="loss", title="Loss", higher_is_better=False)
SPACE = {
    "learning_rate": Range(low=1e-4, high=1e-1, log=True),
    "optimizer": Choices(values=("sgd", "adamw", "lamb")),
}


def make_trial(number: int, state: str, loss: float | None, optimizer: str = "sgd", **fields: Any) -> TrialRow:
    params = {"learning_rate": 10 ** ((number - 10) / 4 - 4), "optimizer": optimizer}
    given = {"epochs": 3, "values": (loss, None)} | fields
    return TrialRow(number=number, run_id=f"run {number}", state=state, params=params, **given)  # type: ignore[arg-type]


TRIALS = (
    make_trial(10, "completed", 0.9, values=(0.9, 30.0), reported={1: 1.5, 2: 0.9}, epoch=2, epochs=2, seconds=90),
    make_trial(12, "pruned", 0.4, "lamb", reported={1: 0.4}, epoch=1, seconds=4, confirmed=(0.7, 0.8, 0.6)),
    make_trial(
        13, "completed", 0.5, "adamw", values=(0.5, 20.0), reported={1: 0.8, 2: 0.6, 3: 0.5}, epoch=3, seconds=3
    ),
    make_trial(15, "failed", 0.8, "lamb", cause="Out of memory.", seconds=7, confirmed=(0.75,)),
    make_trial(18, "running", 0.7, values=(0.7, 10.0), reported={1: 0.7}, epoch=1, epochs=4, seconds=50),
    make_trial(21, "waiting", None, "adamw", seconds=0),
)
STATE = SearchState(
    time=0, trials=TRIALS, best=13, front=(13,), importance={"optimizer": 0.75, "learning_rate": 0.25}, total=40
)


def make_data(*goals: Goal, status: Status = "running", space: dict[str, Any] = SPACE, **fields: Any) -> SearchData:
    """Return the window's data about a search with these goals.

    `fields` override fields of the search's state, such as `trials`, and `space` replaces its search space.
    """
    rows = [structs.replace(row, values=row.values[: len(goals)]) for row in fields.pop("trials", TRIALS)]
    state = structs.replace(STATE, trials=tuple(rows), **fields)
    search = structs.replace(make_search_config(space=space), goals=goals)
    return to_search_data(SearchFolder(Path("/searches/small")), search, state, status)


ONE = make_data(LOSS)
TWO = make_data(LOSS, SECONDS, best=None, front=(10, 13, 18))


def read_points(plot: TrialPlot) -> dict[int, list[tuple[int, float, float]]]:
    """Return the points of a plot by the index of their shade, which is -1 for gray.

    Each point is (trial's row, x, y).
    """
    items = {key[1]: item.data for key, item in plot.items.items() if key[0] == "points"}
    return {number: data[["data", "x", "y"]].tolist() for number, data in items.items() if len(data)}


def read_curve(plot: TrialPlot, key: str) -> list[list[float]]:
    return [values.tolist() for values in plot.items[key].getData()]


def show_trials(plot: TrialPlot, data: SearchData, *rows: int) -> TrialPlot:
    """Show the trials of `data` in a plot, with `rows` selected, and return the plot.

    Checks that the plot isn't replaced by a text.
    """
    plot.select(rows)
    plot.show_data(data)
    assert plot.has_content
    assert all(label.isHidden() for label in plot.findChildren(QLabel))
    return plot


def read_labels(plot: TrialPlot) -> tuple[str, str]:
    return plot.getAxis("bottom").labelText, plot.getAxis("left").labelText


@pytest.mark.usefixtures("styled")
def test_curves_by_epoch() -> None:
    plot = show_trials(TrialCurves("c"), ONE, 4)
    nan = pytest.approx(np.nan, nan_ok=True)
    assert read_curve(plot, "pruned") == [[1, nan, nan], [0.4, nan, nan]]
    assert read_curve(plot, "others") == [
        [1, 2, nan, 1, 2, 3, nan, 1, nan, nan],
        [1.5, 0.9, nan, 0.8, 0.6, 0.5, nan, 0.7, nan, nan],
    ]
    assert read_curve(plot, "best") == [[1, 2, 3, nan], [0.8, 0.6, 0.5, nan]]
    assert read_curve(plot, "selection")[1] == [0.7, nan]
    assert (plot.selection.opts["symbol"], plot.selection.opts["pen"] is None) == (None, False)
    assert plot.viewRange()[0] == pytest.approx([-0.08, 4.08])
    assert plot.getViewBox().state["targetRange"][1] == pytest.approx([0.4, 1.5], abs=0.06)
    plot.show_data(make_data(LOSS, best=None, front=()))
    assert not plot.items["best"].isVisible()
    plot.show_data(ONE)
    assert plot.items["best"].isVisible()
    for trial in TRIALS[1:3]:  # without other or pruned ones
        show_trials(TrialCurves("c"), make_data(LOSS, trials=[trial], best=None))


@pytest.mark.usefixtures("styled")
def test_results_by_trial(qtbot: QtBot) -> None:
    plot = show_trials(HistoryPlot("h"), ONE, 2)
    steps = [[10, 12, 12, 13, 13, 15, 15, 18, 18, 21, 21], [0.9] * 4 + [0.5] * 7]
    assert read_curve(plot, "best") == [steps[0], steps[1]]
    assert read_points(plot) == {
        -1: [(1, 12, 0.4), (3, 15, 0.8)],
        0: [(0, 10, 0.9)],
        2: [(4, 18, 0.7)],
        4: [(2, 13, 0.5)],
    }
    assert [values.tolist() for values in plot.selection.getData()] == [[13], [0.5]]
    assert (plot.selection.opts["symbol"], plot.selection.opts["pen"]) == ("o", None)
    plot.select([])
    assert plot.selection.getData() == (None, None)
    item = plot.items["points", 4]
    with qtbot.waitSignal(plot.picked) as picked:
        item.sigClicked.emit(item, item.points(), None)
    assert picked.args == [13]
    assert (plot.title, read_labels(plot)) == ("Loss by trial", ("Trial", "Loss"))
    assert plot.viewRange()[0] == pytest.approx([-0.44, 22.44])
    higher = show_trials(HistoryPlot("h"), make_data(structs.replace(LOSS, higher_is_better=True)))
    assert read_curve(higher, "best") == [steps[0], [0.9] * 11]
    assert read_labels(show_trials(HistoryPlot("h"), make_data(SECONDS, trials=[structs.replace(TRIALS[0], values=(3,))]))) == (
        "Trial", "Training time, s"
    )  # fmt: skip
    assert read_labels(show_trials(HistoryPlot("h"), make_data(TOP1))) == ("Trial", "Top-1 accuracy, %")


@pytest.mark.usefixtures("styled")
def test_pareto_front_by_second_goal() -> None:
    plot = show_trials(ParetoPlot("p"), TWO, 2)
    assert read_curve(plot, "front") == [[10, 20, 20, 30, 30], [0.7, 0.7, 0.5, 0.5, 0.9]]
    assert read_points(plot) == {0: [(0, 30, 0.9)], 2: [(4, 10, 0.7)], 4: [(2, 20, 0.5)]}
    assert [values.tolist() for values in plot.selection.getData()] == [[20], [0.5]]
    assert (plot.title, read_labels(plot)) == ("Loss against training time", ("Training time, s", "Loss"))
    horizontal, vertical = plot.viewRange()
    assert (horizontal[1] >= 30, vertical[1] < 1) == (True, True)
    assert "0.5" in describe_best(TWO)


@pytest.mark.usefixtures("styled")
def test_importance_of_fields_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    plot = show_trials(ImportancePlot("i"), ONE)
    assert (plot.items["bars"].opts["y"].tolist(), plot.items["bars"].opts["width"]) == ([1, 0], [75, 25])
    texts = {
        key: (item.toPlainText(), item.pos().x()) for key, item in plot.items.items() if isinstance(item, pg.TextItem)
    }
    assert texts == {1: ("75%", 75), 0: ("25%", 25)}
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    theme.notifier.changed.emit()
    assert {plot.items[key].color.name() for key in texts} == {theme.DARK.text}


@pytest.mark.usefixtures("styled")
def test_parallel_coordinates_from_bad_to_best() -> None:
    plot = show_trials(ParallelCoordinatesPlot("p"), ONE)
    goals = [read_curve(plot, ("band", band))[1][2] for band in range(5)]  # type: ignore[arg-type]
    lightness = [plot.items["band", band].opts["pen"].color().lightness() for band in range(5)]
    assert lightness[0] > lightness[4] > pg.mkColor(theme.LIGHT.accent).lightness()
    assert goals == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.0])
    assert read_curve(plot, "best")[1][:3] == pytest.approx([0.25, 0.5, 0.2])
    texts = {key: item.toPlainText() for key, item in plot.items.items() if isinstance(item, pg.TextItem)}
    rates, kinds = {(0, 0): "0.0001", (0, 1): "0.1"}, {(1, 0): "SGD", (1, 0.5): "AdamW", (1, 1): "LAMB"}
    assert texts == rates | kinds | {(2, 0): "0.4", (2, 1): "0.9"}
    assert plot.viewRange()[0] == pytest.approx([-0.35, 2.35])


@pytest.mark.usefixtures("styled")
def test_two_fields_keep_their_choice() -> None:
    plot = show_trials(TwoFieldPlot(), ONE, 2)
    assert (plot.x.currentData(), plot.y.currentData()) == ("optimizer", "learning_rate")
    assert read_labels(plot) == ("Optimizer", "Learning rate")
    assert sorted((shade, row) for shade, rows in read_points(plot).items() for row, *_ in rows) == [
        (-1, 1), (-1, 3), (-1, 5), (0, 0), (2, 4), (4, 2)
    ]  # fmt: skip
    plot.x.setCurrentIndex(0)
    plot.y.setCurrentIndex(1)
    assert read_points(plot)[4] == [(2, pytest.approx(-3.25), 1)]
    assert np.ravel(plot.selection.getData()).tolist() == pytest.approx([-3.25, 1])
    plot.show_data(ONE)
    assert (plot.x.currentData(), plot.y.currentData()) == ("learning_rate", "optimizer")
    image = QImage(9, 9, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    texts = [text for _rect, _flags, text in plot.getAxis("bottom").generateDrawSpecs(painter)[2]]
    painter.end()
    assert {"0.001", "0.01"} <= set(texts)
    assert plot.getViewBox().state["targetRange"] == [pytest.approx([-4.09, -0.91]), pytest.approx([-0.5, 2.5])]


@pytest.mark.usefixtures("styled")
def test_contours_average_the_results_near_trials() -> None:
    space = {"momentum": Range(low=0.5, high=0.9), "label_smoothing": Range(low=0.25, high=0.75)}
    params = [{"momentum": 0.5 + 0.4 * k / 9, "label_smoothing": 0.3} for k in range(10)]
    rows = [
        structs.replace(make_trial(k, "completed", 1 - k / 10, epoch=1), params=each) for k, each in enumerate(params)
    ]
    lost = structs.replace(make_trial(11, "running", None), params={"momentum": 0.7, "label_smoothing": 0.7})
    plot = show_trials(
        TwoFieldPlot(), make_data(LOSS, space=space, trials=[*rows, lost], best=9, front=(9,), importance={})
    )
    contour = plot.items["contour"]
    is_covered = contour.image[..., 3] > 0
    assert is_covered.any(axis=1).all()
    assert is_covered.any(axis=0)[8]
    assert not is_covered.any(axis=0)[-20:].any()
    distances = np.abs(contour.image[[0, -1], 8, :3] - np.array(pg.mkColor(theme.colors().accent).getRgb()[:3])).sum(
        axis=1
    )
    assert distances[0] > distances[1], "better results are closer to the accent color"
    assert contour.mapRectToParent(contour.boundingRect()) == QRectF(0.5, 0.25, 0.4, 0.5)
    painted = contour.getPixmap().toImage()
    assert [painted.pixelColor(40, y).alpha() > 0 for y in (8, 75)] == [True, False]
    plot.y.setCurrentIndex(plot.x.currentIndex())
    assert not contour.isVisible()
    plot.y.setCurrentIndex(1 - plot.x.currentIndex())
    plot.show_data(make_data(LOSS, space=space, trials=[*rows[1:], lost], best=9, front=(9,), importance={}))
    assert not contour.isVisible(), "there are too few trials"


def test_range_of_goal_excludes_outliers_and_impossible_values() -> None:
    higher = structs.replace(LOSS, higher_is_better=True)
    assert compute_axis_range(np.array([1.0, 100.0, 2.0, 3.0]), LOSS) == (1, 10)
    assert compute_axis_range(np.array([1.0, -100.0, 2.0, 3.0]), higher) == (-6, 3)
    assert compute_axis_range(np.array([100.0, np.nan, 100.0]), TOP1) == (99.5, 100.0)
    assert compute_axis_range(np.array([0.0]), TOP1) == (0.0, 0.5)
    assert compute_axis_range(np.array([0.25]), SECONDS) == (0.0, 0.75)
    assert compute_axis_range(np.array([-3.0]), LOSS) == (-3.5, -2.5)
    assert compute_axis_range(np.array([np.nan]), LOSS) == (0, 1)
    assert find_goal_bounds(structs.replace(LOSS, measure="parameters")) == (0, np.inf)


def test_plots_fill_their_columns(show_widget: ShowWidget, qtbot: QtBot) -> None:
    panel = show_widget(SearchPlots(), 1100, 900)
    single = make_data(LOSS, space={"momentum": Range(low=0, high=1)})
    for data, hidden in ((single, [panel.pareto, panel.fields]), (ONE, [panel.pareto]), (TWO, [panel.history])):
        panel.show_data(data)
        qtbot.waitUntil(lambda: not panel.pending)
        assert [each for each in panel.plots if not each.isVisible()] == hidden
    assert panel.pareto.title in [label.text() for label in panel.findChildren(QLabel)]
    for plot in panel.plots:
        with qtbot.waitSignal(panel.picked):
            plot.picked.emit(13)
    for width, columns in ((300, 1), (700, 2), (1100, 3), (700, 2)):
        panel.resize(width, 900)
        visible = [plot.parentWidget() for plot in panel.plots if plot.isVisible()]
        qtbot.waitUntil(lambda columns=columns, visible=visible: len({each.x() for each in visible}) == columns)
        assert {visible[columns - 1].geometry().right(), visible[-1].geometry().right()} == {panel.width() - 1}
        assert len({each.y() for each in visible}) == -(-len(visible) // columns)


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> SearchView:
    created = SearchView()
    qtbot.addWidget(created)
    return created


def test_trials_are_described_and_sorted_by_each_column(view: SearchView, qtbot: QtBot) -> None:
    view.show_data(TWO)
    model = view.model
    texts = [[model.index(row, column).data() for column in range(model.columnCount())] for row in range(6)]
    assert texts == [
        ["10", "Completed", "0.9000", "30 s", "–", "0.0001", "SGD", "2 / 2", "1:30 min"],
        ["12", "Pruned", "0.4000", "–", "0.7000", "0.000316", "LAMB", "1 / 3", "4 s"],
        ["13", "Completed", "0.5000", "20 s", "–", "0.000562", "AdamW", "3 / 3", "3 s"],
        ["15", "Failed", "0.8000", "–", "0.7500", "0.00178", "LAMB", "0 / 3", "7 s"],
        ["18", "Running", "0.7000", "10 s", "–", "0.01", "SGD", "1 / 4", "50 s"],
        ["21", "Waiting", "–", "–", "–", "0.0562", "AdamW", "0 / 3", "0 s"],
    ]
    fonts = [model.index(row, 1).data(Qt.ItemDataRole.FontRole) for row in range(6)]
    assert [font is not None and font.bold() for font in fonts] == [1, 0, 1, 0, 1, 0]
    view.table.setColumnWidth(0, 200)
    view.show_data(TWO)
    assert view.table.columnWidth(0) == 200
    tips = [model.index(row, column).data(Qt.ItemDataRole.ToolTipRole) for row, column in ((1, 4), (3, 4), (3, 0))]
    assert tips[0].startswith("0.7000, 0.8000 and 0.6000 with 3 other seeds; standard deviation 0.1000")
    assert "standard deviation" not in (tips[1] or "")
    assert tips[2] == "Out of memory.\nrun 15"
    spoken = [model.index(row, 0).data(Qt.ItemDataRole.AccessibleTextRole) for row in (1, 2)]
    assert spoken == [None, "13, on the Pareto front"]
    orders = {2: [12, 13, 18], 3: [18, 13, 10], 5: [10, 12, 13], 6: [10, 18, 13], 7: [15, 21, 12], 8: [21, 13, 12]}
    for column, first in orders.items():
        view.table.sortByColumn(column, Qt.SortOrder.AscendingOrder)
        assert [row.number for row in model.rows[:3]] == first, column
    view.plots.pareto.show_data(TWO)
    view.table.select([1])  # the fastest trial that has ended
    assert np.ravel(view.plots.pareto.selection.getData()).tolist() == [20, 0.5]
    view.show_data(make_data(LOSS, space={"momentum": Range(low=0, high=1)}))
    assert (model.columnCount(), model.columns[4].title) == (7, "Momentum")
    view.show_data(ONE)
    assert model.index(2, 0).data(Qt.ItemDataRole.AccessibleTextRole) == "13, the best"
    with qtbot.waitSignal(model.dataChanged) as changed:
        view.show_data(make_data(LOSS, trials=[*TRIALS[:3], structs.replace(TRIALS[3], seconds=8), *TRIALS[4:]]))
    assert changed.args[0].row() == 3
    view.show_data(replace(ONE, search=structs.replace(ONE.search, confirm=0), trials=TRIALS[:1]))
    assert "Confirmed" not in [column.title for column in model.columns]


@pytest.mark.parametrize(
    ("status", "ready", "cause", "severity"),
    [
        ("running", {"pause"}, "", None),
        ("running", {"pause"}, "No GPU is free.", "Information"),
        ("stopped", {"resume", "change"}, "", None),
        ("completed", {"change"}, "", None),
        ("failed", {"resume", "change"}, "", "Error"),
        ("interrupted", {"resume", "change"}, "", "Warning"),
    ],
)
def test_actions_and_notice_fit_the_status(
    view: SearchView, status: Status, ready: set[str], cause: str, severity: str | None
) -> None:
    view.show_data(make_data(LOSS, status=status, cause=cause, worked_s=60.0, seconds_left=3600.0, repeats=5))
    assert {name for name in ("pause", "resume", "change") if getattr(view, name).ready} == ready
    assert view.notice.isHidden() == (severity is None)
    spoken = [label.accessibleName() for label in view.notice.findChildren(QLabel)]
    assert severity is None or severity in spoken
    buttons = {each.text(): each.isHidden() for each in view.findChildren(QPushButton)}
    assert [buttons["Pause"], buttons["Continue"]] == ["pause" not in ready, "resume" not in ready]
    assert (view.progress.value(), view.progress.maximum()) == (4, 40)
    counts = "1 running, 1 waiting, 1 pruned, 1 failed"
    assert all(text in view.progress_text.text() for text in ("4 of 35 trials", counts, "1:00"))
    assert ("1:00:00" in view.progress_text.text()) == (status == "running")


def test_best_trial_is_described_with_all_goals(view: SearchView, qtbot: QtBot) -> None:
    best = structs.replace(TRIALS[2], params={f"field {k}": k for k in range(9)} | TRIALS[2].params)
    data = make_data(LOSS, SECONDS, trials=(*TRIALS[:2], best, *TRIALS[3:]), best=None, front=(13,), status="completed")
    view.show_data(ONE)
    assert view.best.text().startswith("Best so far: trial 13, Loss 0.5000: ")
    view.show_data(data)
    assert view.best.text().startswith("Best: ")
    assert all(text in view.best.text() for text in ("13", "Loss 0.5000", "Training time 20 s", " 5 more"))
    assert (view.train.ready, view.open_best.ready) == (True, True)
    view.show_data(replace(data, search=structs.replace(data.search, best_epochs=77)))
    view.train.trigger()
    view.question.no.click()
    assert view.question.isHidden()
    view.train.trigger()
    assert "77" in view.question.text()
    view.table.select([0, 1])
    assert (view.open.ready, view.compare.ready) == (False, True)
    assert view.compare.toolTip().startswith("Compare")
    view.plots.picked.emit(15)
    assert [view.model.rows[row].number for row in view.table.selected_rows()] == [15]
    assert (view.open.ready, view.compare.ready) == (True, False)
    view.clear()
    assert (view.question.isHidden(), view.table.selected_rows()) == (True, [])
    view.show_data(make_data(LOSS, best=None, front=()))
    assert view.best.isHidden()
