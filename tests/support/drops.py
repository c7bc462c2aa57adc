"""Drops of files on a widget."""

from __future__ import annotations

from pathlib import Path

import PySide6
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QWidget

_PLACE = QPointF(5, 5)
_REST = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
_data: list[QMimeData] = []  # an event does not own its data


def _data_of(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    _data[:] = [data]
    return data


def drop_event(*paths: Path) -> QDropEvent:
    """Return an event that drops `paths`."""
    return QDropEvent(_PLACE, Qt.DropAction.CopyAction, _data_of(*paths), *_REST)


def drop_files(widget: QWidget, *paths: Path) -> None:
    """Drag `paths` into the widget, which must accept them, and drop them."""
    data = _data_of(*paths)
    # From 6.12 on Qt takes the place of a drag as floats, as it does that of a drop, and deprecates whole numbers.
    place = _PLACE if PySide6.__version_info__ >= (6, 12) else QPoint(5, 5)
    enter = QDragEnterEvent(place, Qt.DropAction.CopyAction, data, *_REST)  # type: ignore[call-overload]
    QApplication.sendEvent(widget, enter)
    assert enter.isAccepted()
    QApplication.sendEvent(widget, QDropEvent(_PLACE, Qt.DropAction.CopyAction, data, *_REST))
