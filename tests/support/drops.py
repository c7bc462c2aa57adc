"""Simulation of files that are dragged and dropped onto a widget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import PySide6
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

_PLACE = QPointF(5, 5)
_COPY, _LEFT, _NO_KEYS = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
_data: list[QMimeData] = []  # an event doesn't own its data


def _data_of(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    data.setText("\n".join(url.toString() for url in data.urls()))  # as file managers do
    _data[:] = [data]
    return data


def drop_files(widget: QWidget, *paths: Path) -> None:
    """Drag the files at `paths` onto the widget, check that it accepts them, and drop them."""
    data = drag_files(widget, *paths)
    QApplication.sendEvent(widget, QDropEvent(_PLACE, _COPY, data, _LEFT, _NO_KEYS))


def drag_files(widget: QWidget, *paths: Path) -> QMimeData:
    """Drag the files at `paths` onto the widget, check that it accepts them, and return the dragged data."""
    data = _data_of(*paths)
    # From 6.12 on, Qt uses floats for the position of a drag, and deprecates integers.
    place: Any = _PLACE if PySide6.__version_info__ >= (6, 12) else QPoint(5, 5)
    entered = QDragEnterEvent(place, _COPY, data, _LEFT, _NO_KEYS)
    QApplication.sendEvent(widget, entered)
    assert entered.isAccepted()
    return data
