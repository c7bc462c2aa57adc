"""Images in a run's folder, and image panes that zoom and pan together."""

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
    QResizeEvent,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication, QSizePolicy, QWidget

from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.format import size
from gui.style import theme
from gui.translation import tr
from gui.widgets.point_cloud import Direction, PointCloud

_HELP = tr("Wheel or + and − zoom, drag or Shift+arrows pan, 0 shows the full image; drag that to another program")
_CLOUD_HELP = tr("Drag or the arrow keys turn the points, wheel or + and − zoom, Shift+arrows pan, 0 restores the view")
MAX_ZOOM = 32.0
_ZOOM_STEP = 1.25
_SHARP_FROM = 2.0
"""Minimum zoom level for drawing images without smoothing, in screen pixels per image pixel."""
_MIN_CLOUD_SIDE = 64
"""Minimum side length in pixels of the drawing of a point cloud."""
_PNG_BEGIN = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB\x60\x82"


def read_image(folder: Path, name: str) -> QImage | str:
    """Read the PNG image `name` in `folder`. Return a sentence with the reason if that fails."""
    relative = PurePosixPath(name)
    if not name or relative.is_absolute() or ".." in relative.parts:
        return tr("“{file}” is outside the run's folder.").format(file=name)
    path = folder / relative
    if not path.is_file():
        return tr("{file} is missing.").format(file=name)
    try:
        content = read_file(path, MAX_RESULT_BYTES)
    except OSError as error:
        return tr("Couldn't read {name}: {strerror}.").format(name=name, strerror=error.strerror)
    problem = _find_damage(content)
    if not problem:
        image = QImage.fromData(content)
        if not image.isNull():
            return image
        problem = tr("it is corrupted or takes more than {size}").format(
            size=size(QImageReader.allocationLimit() << 20)
        )
    return tr("Couldn't show {name}: {problem}.").format(name=name, problem=problem)


@cache
def _dragged_files() -> QTemporaryDir:
    """Return the folder for the files of dragged images, which is deleted at exit."""
    return QTemporaryDir()


def _find_damage(content: bytes) -> str:
    """Describe the damage to a PNG file, or return "" if it is intact."""
    if not content.startswith(_PNG_BEGIN):
        return tr("it is not a PNG image")
    return "" if content.endswith(_PNG_END) else tr("it is truncated")


class Zoom(QObject):
    """Visible part of the images, and direction of view of point clouds, shared by several panes.

    Signals:
        changed(): the part or the direction has changed.

    Attributes:
        factor: Magnification relative to an image that fits the pane.
        center: Center of the visible part, as fractions of the image's width and height.
        view_direction: Direction from which point clouds are seen.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.factor = 1.0
        self.center = QPointF(0.5, 0.5)  # as fractions of the image's sides
        self.view_direction = Direction()

    @property
    def is_changed(self) -> bool:
        """True if the images are magnified, or if the direction of view has changed."""
        return self.factor > 1 or self.view_direction != Direction()

    def set_direction(self, direction: Direction) -> None:
        """Set the direction from which point clouds are seen."""
        self.view_direction = direction
        self.changed.emit()

    def set(self, factor: float, center: QPointF) -> None:
        """Set the magnification and the center, within limits: the visible part stays inside of the image."""
        self.factor = min(MAX_ZOOM, max(1.0, factor))
        margin = 0.5 / self.factor
        x, y = (min(1 - margin, max(margin, value)) for value in (center.x(), center.y()))
        self.center = QPointF(x, y)
        self.changed.emit()

    def zoom_by(self, times: float, fixed_point: QPointF | None = None) -> None:
        """Multiply the magnification by `times`. The point `fixed_point`, by default the center, stays in place."""
        fixed = fixed_point if fixed_point is not None else self.center
        new = min(MAX_ZOOM, max(1.0, self.factor * times))
        self.set(new, fixed + (self.center - fixed) * (self.factor / new))

    def pan(self, fractions: QPointF) -> None:
        """Move the visible part by fractions of the image's width and height."""
        self.set(self.factor, self.center + fractions)

    def reset(self) -> None:
        """Show the full images, and point clouds from their initial direction."""
        self.view_direction = Direction()
        self.set(1.0, QPointF(0.5, 0.5))


class ImagePane(QWidget):
    """Pane with an image at the largest size that fits, or with the reason why there is none.

    The wheel and + and - zoom, and a double click and 0 show the full image. Shift+arrows pan. Dragging pans a zoomed
    image, and copies a fully visible one to another program. Dragging and the arrow keys rotate a point cloud. Other
    keys are left to the parent widget.
    """

    def __init__(self, name: str, zoom: Zoom) -> None:
        super().__init__()
        self._zoom = zoom
        self._image: QImage | None = None
        self._cloud: PointCloud | None = None
        self._problem = ""  # reason why there is no image
        self._description = ""  # description for screen readers: of the image, or the problem
        self._drag_start: QPointF | None = None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(120, 120)
        zoom.changed.connect(self._on_zoomed)
        self._show_help()

    @property
    def problem(self) -> str:
        """Message about a missing or damaged image, or "" if it is intact."""
        return self._problem

    def show_image(self, image: QImage | str, description: str) -> None:
        """Show `image`, or a text in its place. `description` is for screen readers."""
        self._image, self._problem = (None, image) if isinstance(image, str) else (image, "")
        self._cloud = PointCloud.of_image(image) if isinstance(image, QImage) else None
        self._description = self._problem or description
        self._show_help()
        self._on_zoomed()

    @property
    def has_cloud(self) -> bool:
        """Return True if the image shows a point cloud that can be turned."""
        return self._cloud is not None

    def _on_zoomed(self) -> None:
        """Redraw the pane after a change of zoom or direction. A point cloud is drawn in its size on the screen."""
        description = self._description
        if self._cloud is not None:
            side = round(min(self._inner_rect().width(), self._inner_rect().height()) * self.devicePixelRatioF())
            self._image = self._cloud.draw(self._zoom.view_direction, max(_MIN_CLOUD_SIDE, side))
            description = f"{description}. {self._zoom.view_direction}"
        self.setAccessibleDescription(description)
        self.update()

    def _show_help(self) -> None:
        """Set the tool tip to the keys for images or point clouds."""
        self.setToolTip(_CLOUD_HELP if self.has_cloud else _HELP)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.has_cloud:
            self._on_zoomed()

    def image_rect(self) -> QRectF:
        """Return the rectangle of the full image in the pane, including the part that isn't visible."""
        if self._image is None:
            return QRectF()
        size = QSize(self._image.size()).scaled(self._inner_rect().size().toSize(), Qt.AspectRatioMode.KeepAspectRatio)
        width, height = size.width() * self._zoom.factor, size.height() * self._zoom.factor
        middle, center = self._inner_rect().center(), self._zoom.center
        return QRectF(middle.x() - center.x() * width, middle.y() - center.y() * height, width, height)

    def sizeHint(self) -> QSize:
        return QSize(260, 260)

    def mime_data(self) -> QMimeData:
        """Return the image for other programs, as data and as a PNG file that is deleted at exit."""
        data = QMimeData()
        if self._image is not None:
            data.setImageData(self._image)
            file = Path(_dragged_files().filePath(f"{uuid4().hex[:8]}-{self.accessibleName().lower()}.png"))
            if self._image.save(str(file)):
                data.setUrls([QUrl.fromLocalFile(str(file))])
        return data

    def _drag_out(self) -> None:
        """Drag the image to another program. Returns when the user has dropped the image."""
        if self._image is None:
            return
        drag = QDrag(self)
        drag.setMimeData(self.mime_data())
        thumbnail = self._image.scaled(96, 96, Qt.AspectRatioMode.KeepAspectRatio)
        drag.setPixmap(QPixmap.fromImage(thumbnail))
        drag.exec(Qt.DropAction.CopyAction)

    def _inner_rect(self) -> QRectF:
        """Return the rectangle inside the frame of the pane."""
        return QRectF(self.rect()).adjusted(2, 2, -2, -2)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the image or the problem, and a frame that shows the focus. Large pixels keep sharp edges."""
        painter = QPainter(self)
        scheme = theme.colors()
        painter.fillRect(self.rect(), QColor(scheme.raised))
        if self._image is not None:
            rect = self.image_rect()
            painter.setClipRect(self._inner_rect())
            ratio = rect.width() * self.devicePixelRatioF() / self._image.width()
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform, ratio < _SHARP_FROM)
            painter.drawImage(rect, self._image)
            painter.setClipping(False)
        else:
            painter.setPen(QColor(scheme.error if self._problem else scheme.muted))
            option = QTextOption(Qt.AlignmentFlag.AlignCenter)
            option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
            painter.drawText(
                self._inner_rect().adjusted(8, 8, -8, -8), f"✖ {self._problem}" if self._problem else "", option
            )
        painter.setBrush(Qt.BrushStyle.NoBrush)
        has_focus = self.hasFocus()
        painter.setPen(QPen(QColor(scheme.accent if has_focus else scheme.border), 2 if has_focus else 1))
        painter.drawRect(self.rect().adjusted(1, 1, -1, -1) if has_focus else self.rect().adjusted(0, 0, -1, -1))

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom at the pointer."""
        self._zoom.zoom_by(_ZOOM_STEP ** (event.angleDelta().y() / 120), self._relative_position(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._drag_start = event.position()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Turn a point cloud, pan a magnified image, or drag a fully visible image out of the window."""
        rect = self.image_rect()
        if self._drag_start is None or rect.isEmpty():
            return
        moved = event.position() - self._drag_start
        if self.has_cloud:
            self._drag_start = event.position()
            self._zoom.set_direction(self._zoom.view_direction.after_drag(moved.x(), moved.y()))
            return
        if self._zoom.factor == 1.0:  # the full image is visible
            if moved.manhattanLength() >= QApplication.startDragDistance():
                self._drag_start = None
                self._drag_out()
            return
        self._drag_start = event.position()
        self._zoom.pan(QPointF(-moved.x() / rect.width(), -moved.y() / rect.height()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._drag_start = None

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self._zoom.reset()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Zoom with +, − and 0, pan with Shift and arrows, and turn a point cloud (see `Direction.after_key`)."""
        key, has_shift = event.key(), bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        step = 0.1 / self._zoom.factor  # a tenth of the visible section, as a fraction of the image
        pans = {
            Qt.Key.Key_Left: QPointF(-step, 0),
            Qt.Key.Key_Right: QPointF(step, 0),
            Qt.Key.Key_Up: QPointF(0, -step),
            Qt.Key.Key_Down: QPointF(0, step),
        }
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self._zoom.zoom_by(_ZOOM_STEP)
        elif key == Qt.Key.Key_Minus:
            self._zoom.zoom_by(1 / _ZOOM_STEP)
        elif key == Qt.Key.Key_0:
            self._zoom.reset()
        elif has_shift and key in pans:
            self._zoom.pan(pans[Qt.Key(key)])
        elif self.has_cloud and (direction := self._zoom.view_direction.after_key(event)) is not None:
            self._zoom.set_direction(direction)
        else:
            super().keyPressEvent(event)

    def _relative_position(self, position: QPointF) -> QPointF:
        """Return a position in the pane as fractions of the image, or the center if there is no image."""
        rect = self.image_rect()
        if rect.isEmpty():
            return self._zoom.center
        return QPointF((position.x() - rect.left()) / rect.width(), (position.y() - rect.top()) / rect.height())
