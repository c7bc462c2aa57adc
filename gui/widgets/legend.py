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
"""Maximum number of rows."""
SWATCH = 11
"""Side length of a color patch in pixels."""
_GAP, _ITEM_SPACING = 6, 16
"""Widths in pixels of the gap between a patch and its name, and of the space between entries."""
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

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[LegendEntry, ...] = ()
        self._present: tuple[int, ...] = ()  # indices of the entries that occur in the images
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
        names = [
            entry.name if entry.color else tr("{name} (unchanged)").format(name=entry.name) for entry in self._entries
        ]
        self.setToolTip("\n".join(names))
        self.setAccessibleDescription(
            tr("In the images: {names}").format(names=", ".join(names[index] for index in self._present))
        )
        self.setVisible(bool(self._entries))
        self.update()

    def visible_entries(self) -> tuple[list[int], int]:
        """Return the indices of the entries that fit, and the number of entries in the images that don't fit.

        Entries that do not occur in the images are included only if all entries fit.
        """
        all_indices = list(range(len(self._entries)))
        if self._count_rows(self._compute_widths(all_indices), self.width()) <= LINES:
            return all_indices, 0
        fitting, hidden_count = list(self._present), 0
        while fitting and self._count_rows(self._compute_widths(fitting, hidden_count), self.width()) > LINES:
            fitting.pop()
            hidden_count += 1
        return fitting, hidden_count

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        rows = self._count_rows(self._compute_widths(range(len(self._entries))), width)
        return min(LINES, rows) * self._row_height() - _LEADING

    def sizeHint(self) -> QSize:
        return QSize(200, self.heightForWidth(max(200, self.width())))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the entries that fit, absent ones muted, and the number of the others."""
        painter = QPainter(self)
        scheme, metrics = theme.colors(), self.fontMetrics()
        indices, hidden_count = self.visible_entries()
        corners = self._place_items(self._compute_widths(indices, hidden_count), self.width())
        for index, corner in zip(indices, corners, strict=False):
            entry = self._entries[index]
            draw_swatch(painter, entry, corner + QPoint(0, (metrics.height() - SWATCH) // 2))
            painter.setPen(QColor(scheme.text if index in self._present else scheme.muted))
            left = SWATCH + _GAP
            name = metrics.elidedText(entry.name, Qt.TextElideMode.ElideRight, self.width() - left)
            painter.drawText(corner + QPoint(left, metrics.ascent()), name)
        if hidden_count:
            painter.setPen(QColor(scheme.muted))
            painter.drawText(corners[-1] + QPoint(0, metrics.ascent()), _describe_hidden(hidden_count))

    def _row_height(self) -> int:
        return self.fontMetrics().height() + _LEADING

    def _compute_widths(self, indices: Sequence[int], hidden_count: int = 0) -> list[int]:
        """Return the widths of the entries at `indices` and, if there are hidden entries, of the text that counts them."""
        advance = self.fontMetrics().horizontalAdvance
        widths = [SWATCH + _GAP + advance(self._entries[index].name) for index in indices]
        return [*widths, advance(_describe_hidden(hidden_count))] if hidden_count else widths

    def _count_rows(self, widths: Sequence[int], max_width: int) -> int:
        """Return the number of rows of up to `max_width` pixels that items of these widths need, at least 1."""
        corners = self._place_items(widths, max_width)
        return corners[-1].y() // self._row_height() + 1 if corners else 1

    def _place_items(self, widths: Sequence[int], max_width: int) -> list[QPoint]:
        """Arrange items of these widths in rows of up to `max_width` pixels, and return their corners."""
        corners: list[QPoint] = []
        x = y = 0
        for width in widths:
            if x and x + width > max_width:
                x, y = 0, y + self._row_height()
            corners.append(QPoint(x, y))
            x += width + _ITEM_SPACING
        return corners


def _describe_hidden(count: int) -> str:
    return tr("and {count} more").format(count=count)
