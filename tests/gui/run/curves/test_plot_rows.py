"""Choice, order and size of a run's plots."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot

from gui.run.curves.plot_rows import PlotList, PlotRows
from tests.gui.sources.written_runs import a_run
from tests.support.widgets import OpenWindow


def in_order(rows: PlotRows) -> list[str]:
    """Return the names of the visible plots in reading order."""
    positions = [
        (plot.mapTo(rows, QPoint()).toTuple()[::-1], name) for name, plot in rows.plots.items() if plot.isVisible()
    ]
    return [name for _, name in sorted(positions)]


def test_plot_rows_are_chosen_ordered_and_enlarged(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.resize(1280, 800)
    window.show_run(a_run(80))
    page = window.workspace.run
    qtbot.waitUntil(page.result.isVisible)
    charts = page.charts
    loss, rows = charts.loss, charts.rows
    qtbot.waitUntil(lambda: loss.height() >= 0.45 * window.height())
    assert loss.mapTo(window, loss.rect().bottomLeft()).y() < window.status.y(), "all of it is in sight"
    qtbot.waitUntil(lambda: in_order(rows)[:2] == ["loss", "accuracy"])
    assert "power_w" not in in_order(rows), "the CPU tells none"

    chooser = PlotList(rows)
    qtbot.addWidget(chooser)
    chooser.chosen.connect(rows.choose)
    qtbot.keyClick(chooser, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    chooser.item(rows.order.index("times")).setCheckState(Qt.CheckState.Unchecked)
    qtbot.waitUntil(lambda: in_order(rows)[:2] == ["accuracy", "loss"])
    assert "times" not in in_order(rows)
    qtbot.waitUntil(lambda: charts.accuracy.height() >= 0.45 * window.height())
    restored = PlotRows({name: type(loss)(name, charts.group) for name in rows.plots}, window.settings)
    qtbot.addWidget(restored)
    assert (restored.order, restored.chosen) == (rows.order, rows.chosen)

    charts.speed.setFocus()
    qtbot.keyClick(charts.speed, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: charts.speed.height() > 0.6 * window.height() and not loss.isVisible())
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: loss.isVisible() and charts.speed.height() < 0.4 * window.height())
    assert "speed" in in_order(rows)
