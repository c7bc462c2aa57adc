"""Bar chart of class counts, with the training split above the validation split."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.contract.dataset import DatasetReport, SplitReport
from gui.dataset import dataset_format
from gui.format import localized
from gui.style import theme
from gui.translation import tr
from gui.widgets.legend import SWATCH, draw_swatch

ROW, HEAD = 24, 20
"""Heights in pixels of a row and of the title, at a text size of 100%."""
_GAP, _EDGE = 8, 4
"""Widths in pixels of the gaps between the columns and of the margins."""
_MAX_NAME_FRACTION = 0.36
"""Maximum fraction of the width for the names of the classes. Longer names are elided."""
_MIN_BAR_WIDTH = 10.0
"""Width in pixels that the longest bar has at least, even if the other columns leave less."""
_TRAIN_HEIGHT, _VAL_HEIGHT = 9, 5
"""Heights in pixels of the bars of the training and the validation split."""


class ClassBalance(QWidget):
    """Bar chart with a row for each class, in the color that marks the class in the examples.

    The longest bar of each split has the full width, so that splits of different sizes can be compared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._report: DatasetReport | None = None
        self._values: list[list[float]] = []  # by class and split
        self._texts: list[str] = []  # values of all splits, by class
        self.setAccessibleName(tr("Counts per class"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_report(self, report: DatasetReport | None) -> None:
        """Show the counts per class of `report`, or clear the chart if `report` is None."""
        self._report = report
        classes = report.classes if report is not None else ()
        splits = report.splits if report is not None else ()
        self._values = [[_get_class_value(split, name) for split in splits] for name in classes]
        self._texts = [" · ".join(_format_class_value(split, name) for split in splits) for name in classes]
        counts = dataset_format.list_class_counts(report) if report is not None else ""
        self.setAccessibleDescription(counts)
        self.setToolTip("\n".join(counts.splitlines()[:30]))
        self.setFixedHeight(self.sizeHint().height())
        self.update()

    def compute_bar_fraction(self, row: int, split: int) -> float:
        """Return the length of a bar relative to the longest bar of its split. `row` and `split` are indices."""
        longest = max((values[split] for values in self._values), default=0.0)
        return self._values[row][split] / longest if longest else 0.0

    def sizeHint(self) -> QSize:
        return QSize(theme.scale_pixels(220), theme.scale_pixels(HEAD) + theme.scale_pixels(ROW) * len(self._values))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the unit and the names of the splits, and below a row per class with swatch, name, bars and counts.

        Only rows in the damaged area are drawn.
        """
        report = self._report
        if report is None or not self._values:
            return
        painter = QPainter(self)
        painter.setFont(theme.with_tabular_digits(self.font()))
        scheme = theme.colors()
        row_height, head_height = theme.scale_pixels(ROW), theme.scale_pixels(HEAD)
        metrics = painter.fontMetrics()
        widest = max(map(metrics.horizontalAdvance, report.classes))
        name_left = _EDGE + (SWATCH + _GAP if report.legend else 0)
        left = name_left + min(widest, self.width() * _MAX_NAME_FRACTION) + _GAP  # of the bars
        texts_width = max(map(metrics.horizontalAdvance, self._texts)) + _GAP
        bar_width = max(_MIN_BAR_WIDTH, self.width() - _EDGE - left - texts_width)
        painter.setPen(QColor(scheme.muted))
        middle = Qt.AlignmentFlag.AlignVCenter
        head = " · ".join(split.name for split in report.splits)
        painter.drawText(
            QRectF(0, 0, self.width() - _EDGE, head_height),
            middle | Qt.AlignmentFlag.AlignRight,
            f"{_describe_unit(report)}: {head}",
        )
        first = max(0, (event.rect().top() - head_height) // row_height)
        for row in range(first, min(len(self._values), (event.rect().bottom() - head_height) // row_height + 1)):
            y = head_height + row * row_height
            if row < len(report.legend):
                draw_swatch(painter, report.legend[row], QPoint(_EDGE, y + (row_height - SWATCH) // 2))
            painter.setPen(QColor(scheme.text))
            name_width = left - _GAP - name_left
            name = metrics.elidedText(report.classes[row], Qt.TextElideMode.ElideRight, int(name_width) + 1)
            painter.drawText(QRectF(name_left, y, name_width, row_height), middle, name)
            painter.setPen(QColor(scheme.muted))
            painter.drawText(
                QRectF(0, y, self.width() - _EDGE, row_height), middle | Qt.AlignmentFlag.AlignRight, self._texts[row]
            )
            self._draw_bars(painter, row, QRectF(left, y, bar_width, row_height))

    def _draw_bars(self, painter: QPainter, row: int, area: QRectF) -> None:
        """Draw the bars of a class below each other: a thick one for training and a thin one for validation.

        A class with samples gets at least one pixel.
        """
        scheme = theme.colors()
        values = self._values[row]
        heights = (_TRAIN_HEIGHT, _VAL_HEIGHT) if len(values) > 1 else (_TRAIN_HEIGHT + _VAL_HEIGHT,)
        y = area.top() + (area.height() - sum(heights)) / 2
        for split, (value, height) in enumerate(zip(values, heights, strict=False)):
            width = area.width() * self.compute_bar_fraction(row, split)
            bar = QRectF(area.left(), y, max(width, 1.0 if value else 0.0), height)
            # Position and fill pattern distinguish the splits, in addition to color.
            fill = QBrush(
                QColor(scheme.accent), Qt.BrushStyle.SolidPattern if split == 0 else Qt.BrushStyle.Dense4Pattern
            )
            painter.fillRect(bar, fill)
            y += height


def _get_class_value(split: SplitReport, name: str) -> float:
    """Return the value of the class `name` in a split, which determines the length of its bar.

    It is the number of objects of the class if the report has these numbers. Otherwise it is the fraction of the pixels
    or points if it is known, and the number of samples if not.
    """
    if split.objects:
        return float(split.objects.get(name, 0))
    return split.shares[name] if name in split.shares else float(split.counts.get(name, 0))


def _format_class_value(split: SplitReport, name: str) -> str:
    """Format the value of a class in a split, as in "1,204" or "31.2%"."""
    value = _get_class_value(split, name)
    is_fraction = name in split.shares and not split.objects
    return f"{localized(100 * value, 1)}%" if is_fraction else localized(value)


def _describe_unit(report: DatasetReport) -> str:
    """Return the heading of the bars: "Marked" if they show numbers of objects.

    For fractions of the pixels or points, it is the noun for these, such as "Pixels". For numbers of samples, it is the
    noun for samples, such as "Images".
    """
    first = report.splits[0] if report.splits else None
    if first is not None and first.objects:
        return tr("Marked")
    if first is not None and first.shares:
        return dataset_format.get_element_noun(report)
    return dataset_format.get_sample_noun(report)
