"""Legend that explains the colors in images."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.contract.images import LegendEntry
from gui.style import theme
from gui.translation import tr

LINES = 2
SWATCH = 11
"""Side length of a color patch in pixels."""
_GAP, _APART = 6, 16
_LEADING = 4


def draw_swatch(painter: QPainter, entry: LegendEntry, corner: QPoint) -> None:
    """Draw a patch in the entry's color, or an empty patch if the entry has no color.

    Its border is visible even if the color is that of the panel.
    """
    painter.setPen(QPen(QColor(theme.colors().muted), 1))
    painter.setBrush(QColor(entry.color) if entry.color else Qt.BrushStyle.NoBrush)
    painter.drawRect(QRect(corner, QSize(SWATCH - 1, SWATCH - 1)))


class Legend(QWidget):
    """Legend for images.

    If all entries fit into two rows, entries that don't occur in the images are muted. Otherwise, they are left out.
    The height depends only on the width, so that the layout doesn't change between images.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._entries: tuple[LegendEntry, ...] = ()
        self._present: tuple[int, ...] = ()
        self.setAccessibleName(tr("Legend"))
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.hide()

    def show_legend(self, entries: Sequence[LegendEntry], present: Sequence[int]) -> None:
        """Show `entries`. Those with indices in `present` occur in the images. Without entries, hide the legend."""
        if tuple(entries) != self._entries:
            self._entries = tuple(entries)
            self.updateGeometry()
        self._present = tuple(index for index in present if 0 <= index < len(self._entries))
        names = [f"{entry.name}{'' if entry.color else ' (unchanged)'}" for entry in self._entries]
        self.setToolTip("\n".join(names))
        self.setAccessibleDescription(f"In the images: {', '.join(names[index] for index in self._present)}")
        self.setVisible(bool(self._entries))
        self.update()

    def visible_entries(self) -> tuple[list[int], int]:
        """Return the indices of the entries that fit, and the number of entries in the images that don't fit.

        Entries that do not occur in the images are included only if all entries fit.
        """
        every_index = list(range(len(self._entries)))
        if self._rows(every_index) <= LINES:
            return every_index, 0
        fitting = list(self._present)
        while fitting and self._rows(fitting, more=len(self._present) - len(fitting)) > LINES:
            fitting.pop()
        return fitting, len(self._present) - len(fitting)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        rows = self._wrap(self._widths(range(len(self._entries))), width)[1]
        return min(LINES, rows) * self._row_height() - _LEADING

    def sizeHint(self) -> QSize:
        return QSize(200, self.heightForWidth(max(200, self.width())))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the entries that fit, absent ones muted, and the number of the others."""
        painter = QPainter(self)
        scheme, metrics = theme.colors(), self.fontMetrics()
        indices, more = self.visible_entries()
        corners, _row_count = self._wrap(self._widths(indices, more), self.width())
        for index, corner in zip(indices, corners, strict=False):
            entry = self._entries[index]
            draw_swatch(painter, entry, corner + QPoint(0, (metrics.height() - SWATCH) // 2))
            painter.setPen(QColor(scheme.text if index in self._present else scheme.muted))
            left = SWATCH + _GAP
            name = metrics.elidedText(entry.name, Qt.TextElideMode.ElideRight, self.width() - left)
            painter.drawText(corner + QPoint(left, metrics.ascent()), name)
        if more:
            painter.setPen(QColor(scheme.muted))
            painter.drawText(corners[-1] + QPoint(0, metrics.ascent()), _more(more))

    def _row_height(self) -> int:
        return self.fontMetrics().height() + _LEADING

    def _rows(self, indices: Sequence[int], more: int = 0) -> int:
        return self._wrap(self._widths(indices, more), self.width())[1]

    def _widths(self, indices: Sequence[int], more: int = 0) -> list[int]:
        """Return the widths of the entries at `indices`, and of the text that counts `more` others."""
        advance = self.fontMetrics().horizontalAdvance
        widths = [SWATCH + _GAP + advance(self._entries[index].name) for index in indices]
        return [*widths, advance(_more(more))] if more else widths

    def _wrap(self, widths: Sequence[int], max_width: int) -> tuple[list[QPoint], int]:
        """Arrange items of these widths in rows of up to `max_width` pixels. Return their corners and the number of rows."""
        corners: list[QPoint] = []
        x = y = 0
        for width in widths:
            if x and x + width > max_width:
                x, y = 0, y + self._row_height()
            corners.append(QPoint(x, y))
            x += width + _APART
        return corners, y // self._row_height() + 1


def _more(count: int) -> str:
    return f"and {count} more"
