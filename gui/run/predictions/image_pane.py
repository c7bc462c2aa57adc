"""Images of a run's folder: read with what stands in the way in words, and panes that zoom and pan together."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath
from uuid import uuid4

from PySide6.QtCore import QMimeData, QObject, QPointF, QRectF, QSize, Qt, QTemporaryDir, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QDrag,
    QImage,
    QImageReader,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from gui.format import size
from gui.style import theme

MOST = 32.0
_STEP = 1.25
_SHARP_FROM = 2.0
"""Screen pixels to one of the image's from which on its pixels are shown as they are."""
_PNG_BEGIN = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB\x60\x82"


def read_image(folder: Path, name: str) -> QImage | str:
    """The PNG image of that name, relative to `folder`; or why there is none, in words."""
    inside = PurePosixPath(name)
    if not name or inside.is_absolute() or ".." in inside.parts:
        return f"“{name}” is outside the run's folder."
    path = folder / inside
    if not path.is_file():
        return f"{name} is missing."
    try:
        content = path.read_bytes()
    except OSError as error:
        return f"{name} can't be read: {error.strerror}."
    why = _damage(content)
    image = QImage() if why else QImage.fromData(content)
    if not why and image.isNull():
        why = f"it is corrupted or takes more than {size(QImageReader.allocationLimit() << 20)}"
    return f"{name} can't be shown: {why}." if why else image


@cache
def _dragged_files() -> QTemporaryDir:
    """Where the files of dragged images lie; it goes with the program."""
    return QTemporaryDir()


def _damage(content: bytes) -> str:
    """The obvious defect of a PNG file, "" if there is none."""
    if not content.startswith(_PNG_BEGIN):
        return "it is not a PNG image"
    return "" if content.endswith(_PNG_END) else "it is truncated"


class Zoom(QObject):
    """What part of their images several panes show: `factor` times as large as fits, around `centre` (shares of the
    image's width and height).

    Signals: changed().
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.factor = 1.0
        self.centre = QPointF(0.5, 0.5)

    def set(self, factor: float, centre: QPointF) -> None:
        self.factor = min(MOST, max(1.0, factor))
        # No further than its edges.
        half = 0.5 / self.factor
        x, y = (min(1 - half, max(half, value)) for value in (centre.x(), centre.y()))
        self.centre = QPointF(x, y)
        self.changed.emit()

    def by(self, times: float, around: QPointF | None = None) -> None:
        """Zooms so that the place `around` stays where it is on screen; around the centre where none is given."""
        at = around if around is not None else self.centre
        new = min(MOST, max(1.0, self.factor * times))
        self.set(new, at + (self.centre - at) * (self.factor / new))

    def pan(self, shares: QPointF) -> None:
        self.set(self.factor, self.centre + shares)

    def reset(self) -> None:
        self.set(1.0, QPointF(0.5, 0.5))


class ImagePane(QWidget):
    """One image, as large as there is room, or in words why there is none.

    The wheel and + and - zoom, dragging and Shift with the arrows pan, a double click and 0 show the whole image,
    which can be dragged to other programs. Other keys are left to the owner.
    """

    def __init__(self, name: str, zoom: Zoom, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._zoom = zoom
        self._image: QImage | None = None
        self._trouble = ""
        self._dragged: QPointF | None = None
        self.setAccessibleName(name)
        self.setToolTip(
            "Wheel or + and − zoom, drag or Shift+arrows pan, 0 shows the whole image; drag that to another program"
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(120, 120)
        zoom.changed.connect(self.update)

    @property
    def trouble(self) -> str:
        """Why there is no image, "" where there is one."""
        return self._trouble

    def show_image(self, image: QImage | str, words: str) -> None:
        """Shows `image`, or the words that stand in its place; `words` say what is to be seen."""
        self._image, self._trouble = (None, image) if isinstance(image, str) else (image, "")
        self.setAccessibleDescription(self._trouble or words)
        self.update()

    def image_rect(self) -> QRectF:
        """Where the whole image lies, though part of it may be out of sight."""
        if self._image is None:
            return QRectF()
        size = QSize(self._image.size()).scaled(self._room().size().toSize(), Qt.AspectRatioMode.KeepAspectRatio)
        width, height = size.width() * self._zoom.factor, size.height() * self._zoom.factor
        middle, centre = self._room().center(), self._zoom.centre
        return QRectF(middle.x() - centre.x() * width, middle.y() - centre.y() * height, width, height)

    def sizeHint(self) -> QSize:
        return QSize(260, 260)

    def dragged(self) -> QMimeData:
        """The image for other programs: as an image, and as a PNG file that lasts as long as this program."""
        data = QMimeData()
        if self._image is not None:
            data.setImageData(self._image)
            file = Path(_dragged_files().filePath(f"{uuid4().hex[:8]}-{self.accessibleName().lower()}.png"))
            if self._image.save(str(file)):
                data.setUrls([QUrl.fromLocalFile(str(file))])
        return data

    def _drag_out(self) -> None:
        if self._image is None:
            return
        drag = QDrag(self)
        drag.setMimeData(self.dragged())
        side = Qt.AspectRatioMode.KeepAspectRatio
        drag.setPixmap(QPixmap.fromImage(self._image.scaled(96, 96, side)))
        drag.exec(Qt.DropAction.CopyAction)

    def _room(self) -> QRectF:
        return QRectF(self.rect()).adjusted(2, 2, -2, -2)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scheme = theme.colors()
        painter.fillRect(self.rect(), QColor(scheme.raised))
        if self._image is not None:
            rect = self.image_rect()
            painter.setClipRect(self._room())
            ratio = rect.width() * self.devicePixelRatioF() / self._image.width()
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, ratio < _SHARP_FROM)
            painter.drawImage(rect, self._image)
            painter.setClipping(False)
        else:
            painter.setPen(QColor(scheme.error if self._trouble else scheme.muted))
            option = QTextOption(Qt.AlignmentFlag.AlignCenter)
            option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
            painter.drawText(self._room().adjusted(8, 8, -8, -8), f"✖ {self._trouble}" if self._trouble else "", option)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        focus = self.hasFocus()
        painter.setPen(QPen(QColor(scheme.accent if focus else scheme.border), 2 if focus else 1))
        painter.drawRect(self.rect().adjusted(1, 1, -1, -1) if focus else self.rect().adjusted(0, 0, -1, -1))

    # Zooming and panning

    def wheelEvent(self, event: QWheelEvent) -> None:
        self._zoom.by(_STEP ** (event.angleDelta().y() / 120), self._share(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragged = event.position()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        rect = self.image_rect()
        if self._dragged is None or rect.isEmpty():
            return
        moved = event.position() - self._dragged
        if self._zoom.factor == 1.0:  # there is nothing to pan to
            if moved.manhattanLength() >= QApplication.startDragDistance():
                self._dragged = None
                self._drag_out()
            return
        self._dragged = event.position()
        self._zoom.pan(QPointF(-moved.x() / rect.width(), -moved.y() / rect.height()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._dragged = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._zoom.reset()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, shift = event.key(), bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        step = 0.1 / self._zoom.factor
        pans = {
            Qt.Key.Key_Left: QPointF(-step, 0),
            Qt.Key.Key_Right: QPointF(step, 0),
            Qt.Key.Key_Up: QPointF(0, -step),
            Qt.Key.Key_Down: QPointF(0, step),
        }
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self._zoom.by(_STEP)
        elif key == Qt.Key.Key_Minus:
            self._zoom.by(1 / _STEP)
        elif key == Qt.Key.Key_0:
            self._zoom.reset()
        elif shift and key in pans:
            self._zoom.pan(pans[Qt.Key(key)])
        else:
            super().keyPressEvent(event)

    def _share(self, position: QPointF) -> QPointF:
        rect = self.image_rect()
        if rect.isEmpty():
            return self._zoom.centre
        return QPointF((position.x() - rect.left()) / rect.width(), (position.y() - rect.top()) / rect.height())
