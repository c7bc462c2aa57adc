"""Notice over a widget while files are dragged over it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QLabel, QWidget

from gui.widgets.buttons import styled
from gui.widgets.run_drag import is_of_runs


class FileDropTarget(QLabel):
    """Label that lets a widget accept dropped files. It covers the widget while files are dragged over it.

    Signals:
        dropped(list[str]): the user has dropped these local files or folders.
    """

    dropped = Signal(list)

    def __init__(self, covered: QWidget, text: str, accepts: Callable[[list[str]], bool] = lambda _paths: True) -> None:
        """Create the hidden label with a `text`. `accepts` returns True if `covered` accepts files with these paths."""
        super().__init__(text, covered, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        styled(self, "drop")
        self._covered, self._accepts = covered, accepts
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        covered.setAcceptDrops(True)
        covered.installEventFilter(self)
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Accept files that are dragged over the widget, and emit `dropped` when they are dropped."""
        if event.type() in (QEvent.Type.DragLeave, QEvent.Type.Drop):
            self.hide()
        if not isinstance(event, QDropEvent) or event.type() not in (QEvent.Type.DragEnter, QEvent.Type.Drop):
            return super().eventFilter(watched, event)
        # Dragged runs are for tables.
        urls = [] if is_of_runs(event.mimeData()) else event.mimeData().urls()
        paths = [url.toLocalFile() for url in urls if url.isLocalFile()]
        if not paths or not self._accepts(paths):
            return False
        event.acceptProposedAction()
        if event.type() == QEvent.Type.DragEnter:
            self.setGeometry(self._covered.rect())
            self.show()
            self.raise_()
        else:
            self.dropped.emit(paths)
        return True
