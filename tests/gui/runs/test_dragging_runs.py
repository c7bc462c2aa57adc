"""Tests of dragging runs into the comparison and out of the window."""

from __future__ import annotations

import PySide6
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.widgets.run_drag import RunDrop
from tests.gui.sources.written_runs import a_run
from tests.support.widgets import OpenWindow


def drop(widget: QWidget, data: QMimeData) -> None:
    copy, left, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    # Qt 6.12 takes the position of a drag as floats, and deprecates integers.
    position = QPointF(3, 3) if PySide6.__version_info__ >= (6, 12) else QPoint(3, 3)
    enter = QDragEnterEvent(position, copy, data, left, keys)  # type: ignore[call-overload]
    QApplication.sendEvent(widget, enter)
    if enter.isAccepted():
        QApplication.sendEvent(widget, QDropEvent(QPointF(3, 3), copy, data, left, keys))


def test_dragged_runs_are_compared(open_window: OpenWindow, qtbot: QtBot) -> None:
    runs = [a_run(8, name=name) for name in ("one", "two", "three")]
    window = open_window()
    page = window.workspace.runs
    qtbot.waitUntil(lambda: page.model.rowCount() == 3)

    def dragged(run: RunFolder) -> QMimeData:
        row = page.model.position(run.run_id)
        assert row is not None
        index = page.model.index(row, 0)
        assert page.model.flags(index) & Qt.ItemFlag.ItemIsDragEnabled
        return page.model.mimeData([index, page.model.index(row, 1)])

    assert [url.toLocalFile() for url in dragged(runs[0]).urls()] == [str(runs[0].path)]
    dataset = window.form.field_value("dataset")
    drop(window, dragged(runs[0]))
    (zone,) = page.findChildren(RunDrop)
    drop(zone, dragged(runs[0]))
    drop(zone, dragged(runs[1]))
    comparison = window.workspace.comparison()
    assert window.pages.currentWidget() is comparison
    by_file_manager = QMimeData()
    by_file_manager.setUrls([QUrl.fromLocalFile(str(runs[2].path))])
    drop(comparison, by_file_manager)
    assert comparison.run_ids == [run.run_id for run in runs]
    qtbot.waitUntil(lambda: len(comparison.runs) == 3)
    assert window.form.field_value("dataset") == dataset, "a run is not a dataset"
