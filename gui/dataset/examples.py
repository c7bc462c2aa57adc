"""List of example images, as a scrolling strip or as a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QImage, QKeyEvent, QMouseEvent, QPainter, QPen, QPixmap
from PySide6.QtWidgets import (
    QListView,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
)

from engine.contract.dataset import Example, PreviewImage
from gui.style import theme
from gui.translation import tr
from gui.widgets.point_cloud import Direction, PointCloud

_PAD = 4
_STRIP_MARGIN = 14
"""Height in pixels of the scroll bar and frame of a strip."""


class ExampleList(QListWidget):
    """List of example images of equal size, as a scrolling strip or a grid.

    Images are decoded when they become visible. In a grid, dragging and Shift+arrows turn all point clouds.

    Signals:
        opened(int): the user has clicked the example at this index in a strip, or pressed Enter on it.

    Attributes:
        examples: Visible examples.
    """

    opened = Signal(int)

    def __init__(self, side: int, *, strip: bool, captions: bool = True) -> None:
        """Create an empty list.

        Args:
            side: Side length of an image in screen pixels.
            strip: Arrange the images in one row instead of a grid.
            captions: Show the classes below the images.
        """
        super().__init__()
        self.examples: tuple[Example, ...] = ()
        self._images: dict[int, QImage] = {}  # by row, as read
        self._clouds: dict[int, PointCloud | None] = {}  # by row
        self._direction = Direction()  # that point clouds are seen from
        self._drag_start: QPointF | None = None  # position of the pointer while a point cloud is turned
        self._pixmaps: dict[int, QPixmap] = {}  # by row, in the size of the list
        # Rendered training images by sample, or None if the images in the folder are shown.
        self._rendered: dict[int, PreviewImage] | None = None
        self._side = side
        self._is_strip, self._has_captions = strip, captions
        self.setAccessibleName(tr("Examples"))
        self.setViewMode(QListView.ViewMode.IconMode)
        self.setMovement(QListView.Movement.Static)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setFlow(QListView.Flow.LeftToRight)
        self.setWrapping(not strip)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setItemDelegate(_ExampleDelegate(self))
        if strip:
            self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
            self.itemClicked.connect(lambda item: self.opened.emit(self.row(item)))

    def show_examples(self, examples: Sequence[Example], rendered: Mapping[int, PreviewImage] | None = None) -> None:
        """Show `examples`.

        `rendered` contains rendered images by sample number. They replace the images in the folder, and examples without a
        rendered image stay empty. If `rendered` is None, the images in the folder are shown.
        """
        row = self.currentRow() if tuple(examples) == self.examples else -1
        self.examples = tuple(examples)
        self._rendered = None if rendered is None else dict(rendered)
        self._images.clear()
        self._clouds.clear()
        self._direction = Direction()
        self.clear()
        for example in self.examples:
            self.addItem(QListWidgetItem(example.class_name if self._has_captions else ""))
            self._update_texts(self.count() - 1)
        self._fit_items()
        self.setCurrentRow(row)  # the selected example, which may be rendered differently

    def add_rendered(self, image: PreviewImage) -> None:
        """Show a training image that was rendered just now, unless the list shows the images in the folder."""
        if self._rendered is None:
            return
        self._rendered[image.sample] = image
        for number, example in enumerate(self.examples):
            if example.sample == image.sample:
                self._images.pop(number, None)
                self._clouds.pop(number, None)
                self._pixmaps.pop(number, None)
                self._update_texts(number)
        self.viewport().update()

    def is_awaited(self, row: int) -> bool:
        """Return True if the rendered training image of the example at `row` is still awaited."""
        return self._rendered is not None and self.examples[row].sample not in self._rendered

    def image(self, row: int) -> QPixmap:
        """Return the image of the example at `row` in the size of the list, or a null image if it can't be read.

        A point cloud is drawn from the current direction. The image is cached.
        """
        if row not in self._pixmaps:
            cloud = self._get_cloud(row)
            if cloud is None:
                image = self._decode_image(row)
            else:
                image = cloud.draw(self._direction, round(self._side * self.devicePixelRatioF()))
            self._pixmaps[row] = self._scale_to_side(image)
        return self._pixmaps[row]

    def _get_cloud(self, row: int) -> PointCloud | None:
        """Return the point cloud that the example at `row` shows, or None if it shows none or the list is a strip.

        The cloud is decoded once, and then cached.
        """
        if self._is_strip:
            return None
        if row not in self._clouds:
            self._clouds[row] = PointCloud.of_image(self._decode_image(row))
        return self._clouds[row]

    def set_direction(self, direction: Direction) -> None:
        """Show all point clouds from this direction."""
        self._direction = direction
        for row, cloud in self._clouds.items():
            if cloud is not None:
                self._pixmaps.pop(row, None)
                self._update_texts(row)
        self.viewport().update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Start turning all point clouds if the mouse is pressed on one."""
        row = self.indexAt(event.position().toPoint()).row()
        self._drag_start = event.position() if row >= 0 and self._get_cloud(row) is not None else None
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Turn all point clouds while one is dragged."""
        if self._drag_start is None:
            super().mouseMoveEvent(event)
            return
        movement = event.position() - self._drag_start
        self._drag_start = event.position()
        self.set_direction(self._direction.after_drag(movement.x(), movement.y()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._drag_start = None
        super().mouseReleaseEvent(event)

    def _decode_image(self, row: int) -> QImage:
        """Return the decoded image of the example at `row`, or a null image if it can't be read."""
        if row not in self._images:
            self._images[row] = QImage.fromData(self.png(row))
        return self._images[row]

    def png(self, row: int) -> bytes:
        """Return the PNG data of an example, or b"" if it hasn't been rendered."""
        image = self._get_source(row)
        return b"" if image is None else image.png

    def _get_source(self, row: int) -> Example | PreviewImage | None:
        """Return the example at `row` or, if the list shows rendered images, the rendered image of the example.

        Returns None if that image hasn't been rendered.
        """
        example = self.examples[row]
        if self._rendered is None:
            return example
        return None if example.sample is None else self._rendered.get(example.sample)

    def _update_texts(self, row: int) -> None:
        """Set the tool tip and the accessible text of the example at `row`."""
        text, image = make_caption(self.examples[row]), self._get_source(row)
        if isinstance(image, PreviewImage):
            text = tr("{example}, as augmented in epoch {epoch} at {size} px").format(
                example=text, epoch=image.epoch, size=image.size
            )
        if self._clouds.get(row) is not None:
            text = ". ".join((text, str(self._direction), tr("Drag or Shift+arrows turn the points")))
        self.item(row).setToolTip(text)
        self.item(row).setData(Qt.ItemDataRole.AccessibleTextRole, tr("Example: {example}").format(example=text))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Open the current example with Enter, or turn all point clouds with Shift and the arrows."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentRow() >= 0:
            self.opened.emit(self.currentRow())
            return
        has_shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        direction = self._direction.after_key(event) if has_shift and any(self._clouds.values()) else None
        if direction is not None:
            self.set_direction(direction)
        else:
            super().keyPressEvent(event)

    def set_side(self, side: int) -> None:
        """Set the side length of the images."""
        if side != self._side:
            self._side = side
            self._fit_items()

    def _fit_items(self) -> None:
        """Fit the items to the side length of the images."""
        self._pixmaps.clear()
        width, caption = self._side + 2 * _PAD, self._compute_caption_height()
        if self._is_strip:
            self.setFixedHeight(width + caption + _STRIP_MARGIN)
        for row in range(self.count()):
            self.item(row).setSizeHint(QSize(width, width + caption))
        self.scheduleDelayedItemsLayout()  # Qt keeps the size of uniform items until the next layout

    def _compute_caption_height(self) -> int:
        """Return the height of the captions in pixels, or 0 if captions are off or no example has a class."""
        has_captions = self._has_captions and any(example.class_name for example in self.examples)
        return self.fontMetrics().height() + 2 if has_captions else 0

    def _scale_to_side(self, image: QImage) -> QPixmap:
        """Scale an image to the side length of the list's thumbnails. An unreadable image gives a null pixmap."""
        pixmap = QPixmap.fromImage(image)
        if pixmap.isNull():
            return pixmap
        ratio = self.devicePixelRatioF()
        side = round(self._side * ratio)
        # Small images are enlarged without smoothing, so that their pixels are visible.
        is_small = 2 * max(pixmap.width(), pixmap.height()) <= side
        mode = Qt.TransformationMode.FastTransformation if is_small else Qt.TransformationMode.SmoothTransformation
        fitted = pixmap.scaled(side, side, Qt.AspectRatioMode.KeepAspectRatio, mode)
        fitted.setDevicePixelRatio(ratio)
        return fitted


class _ExampleDelegate(QStyledItemDelegate):
    """Delegate that paints an image above its class, with a frame around the selected one."""

    def __init__(self, examples: ExampleList) -> None:
        super().__init__(examples)
        self._examples = examples

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        size: QSize = index.data(Qt.ItemDataRole.SizeHintRole)
        return size

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draw an example: its image, or a sign that it is awaited or unreadable, with the caption below."""
        scheme = theme.colors()
        rect: QRect = option.rect
        square = QRect(rect.left() + _PAD, rect.top() + _PAD, rect.width() - 2 * _PAD, rect.width() - 2 * _PAD)
        image = self._examples.image(index.row())
        painter.fillRect(square, QColor(scheme.raised))
        if image.isNull():
            awaited = self._examples.is_awaited(index.row())
            painter.setPen(QColor(scheme.muted if awaited else scheme.error))
            painter.drawText(square, Qt.AlignmentFlag.AlignCenter, "…" if awaited else "✖")
        else:
            size = image.deviceIndependentSize().toSize()
            painter.drawPixmap(square.center() - QRect(0, 0, size.width(), size.height()).center(), image)
        caption = rect.adjusted(_PAD, rect.width(), -_PAD, 0)
        text = painter.fontMetrics().elidedText(index.data() or "", Qt.TextElideMode.ElideMiddle, caption.width())
        painter.setPen(QColor(scheme.text))
        painter.drawText(caption, Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop, text)
        state: QStyle.StateFlag = option.state
        if state & QStyle.StateFlag.State_Selected:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(scheme.accent), 2))
            painter.drawRect(rect.adjusted(1, 1, -1, -1))


def make_caption(example: Example) -> str:
    """Return a caption, as in "rose (train)"."""
    return f"{example.class_name} ({example.split})" if example.class_name else example.split
