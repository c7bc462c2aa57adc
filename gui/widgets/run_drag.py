"""Drag and drop of runs: as ids within the window, as folders to other programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import PurePath

from PySide6.QtCore import QMimeData, QUrl, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QWidget

from engine.runs.folder import RunSummary
from gui.widgets.layouts import hbox

_IDS = "application/x-footplate-runs"


def make_drag_data(runs: Iterable[RunSummary]) -> QMimeData:
    """Return drag data for `runs`."""
    runs = list(runs)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(run.folder) for run in runs])
    data.setData(_IDS, "\n".join(run.run_id for run in runs).encode())
    return data


def run_ids_in(data: QMimeData, known_ids: Collection[str]) -> list[str]:
    """Return the ids of dragged runs, or of run folders from a file manager. Return an empty list for other data.

    A folder is that of a run if its name is in `known_ids`. The disk isn't accessed, because it could block the window.
    """
    if data.hasFormat(_IDS):
        return bytes(data.data(_IDS).data()).decode(errors="replace").split("\n")
    names = [PurePath(url.toLocalFile()).name for url in data.urls() if url.isLocalFile()]
    return [name for name in names if name in known_ids]


def is_of_runs(data: QMimeData) -> bool:
    """Return True if the data are runs from a Footplate window."""
    return data.hasFormat(_IDS)


class RunDrop(QWidget):
    """Frame that accepts dropped runs for the widget inside it, even while that widget is disabled.

    Signals:
        dropped(list[str]): the user has dropped the runs with these ids.
    """

    dropped = Signal(list)

    def __init__(self, inside: QWidget, known_ids: Callable[[], Collection[str]]) -> None:
        """Create a frame around `inside`. `known_ids` returns the ids of all runs."""
        super().__init__()
        self._known_ids = known_ids
        self.setAcceptDrops(True)
        self.setLayout(hbox(inside))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if run_ids_in(event.mimeData(), self._known_ids()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        self.dropped.emit(run_ids_in(event.mimeData(), self._known_ids()))
