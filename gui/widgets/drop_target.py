"""Notice over a widget while something is dragged over it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QLabel, QWidget

from gui.widgets.buttons import styled
from gui.widgets.run_drag import is_of_runs


class DropTarget(QLabel):
    """Notice that covers the widget `covered` after a call of `cover`.

    It disappears when the dragged files leave it or are dropped.
    """

    def __init__(self, covered: QWidget, text: str) -> None:
        super().__init__(text, covered, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        styled(self, "drop")
        self._covered = covered
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        covered.installEventFilter(self)
        self.hide()

    def cover(self) -> None:
        """Show the notice over the widget."""
        self.setGeometry(self._covered.rect())
        self.show()
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._covered and event.type() in (QEvent.Type.DragLeave, QEvent.Type.Drop):
            self.hide()
        return super().eventFilter(watched, event)


class FileDropTarget(DropTarget):
    """Notice that accepts files from a file manager.

    Signals:
        dropped(list[str]): the user has dropped these local files or folders.
    """

    dropped = Signal(list)

    def __init__(self, covered: QWidget, text: str) -> None:
        super().__init__(covered, text)
        covered.setAcceptDrops(True)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Accept local files: cover the window while they are dragged over it, and emit `dropped` afterwards."""
        is_handled = super().eventFilter(watched, event)
        if not isinstance(event, QDropEvent) or event.type() not in (QEvent.Type.DragEnter, QEvent.Type.Drop):
            return is_handled
        # Dragged runs are for tables.
        urls = [] if is_of_runs(event.mimeData()) else event.mimeData().urls()
        paths = [url.toLocalFile() for url in urls if url.isLocalFile()]
        if not paths:
            return is_handled
        event.acceptProposedAction()
        if event.type() == QEvent.Type.DragEnter:
            self.cover()
        else:
            self.dropped.emit(paths)
        return True
