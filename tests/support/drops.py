"""Drops of files on a widget."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent

_data: list[QMimeData] = []  # an event does not own its data


def drop_event(*paths: Path) -> QDropEvent:
    """Return an event that drops `paths`."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    _data[:] = [data]
    return QDropEvent(
        QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
