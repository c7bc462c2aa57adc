"""Table, plot, threshold editor and texts that the views of an evaluation share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pyqtgraph as pg
from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDoubleSpinBox,
    QHeaderView,
    QSlider,
    QTableWidgetItem,
    QWidget,
)

from engine.contract.catalogue import Measure
from engine.contract.inference import prediction
from engine.contract.inference.evaluation import Evaluation, Interval, SkippedSample
from engine.system.format import NOT_KNOWN
from engine.system.plain_text import shorten
from gui.format import counted, format_time_or_date, locale, localized, metric_value
from gui.plots.themed import ThemedPlot
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.column_model import LEFT, PAD, RIGHT, RowWidget, apply_table_style
from gui.widgets.editors import indent_text
from gui.widgets.labels import field_label
from gui.widgets.layouts import hbox

_MAX_WIDTH = 720
"""Maximum width of a table in pixels, because wider rows are hard to read."""
_MIN_COLUMN_WIDTH = 90
_SPARE_WIDTH = 8
"""Width in pixels that a column has beyond its longest text and the padding."""


class PlainTable(RowWidget):
    """Short read-only table whose height fits its rows exactly."""

    def __init__(self, name: str, titles: Sequence[str]) -> None:
        """Create an empty table with an accessible name and column titles."""
        super().__init__(0, len(titles))
        self.setAccessibleName(name)
        apply_table_style(self)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        theme.scale_with_text(self.setMaximumWidth, _MAX_WIDTH)
        for column, title in enumerate(titles):
            item = QTableWidgetItem(title)
            item.setTextAlignment(RIGHT if column else LEFT)
            self.setHorizontalHeaderItem(column, item)

    def show_rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Show `rows`, or hide the table if there are none."""
        self.setRowCount(len(rows))
        for number, row in enumerate(rows):
            for column, text in enumerate(row):
                item = QTableWidgetItem(text)
                item.setTextAlignment(RIGHT if column else LEFT)
                item.setToolTip(text)
                self.setItem(number, column, item)
        for column in range(1, self.columnCount()):
            self._fit_column(column)
        height = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth() + 2
        self.setFixedHeight(height + len(rows) * self.verticalHeader().defaultSectionSize())
        self.setVisible(bool(rows))

    def _fit_column(self, column: int) -> None:
        """Fit the width of a column to its texts and their padding, which text widths don't include."""
        head = self.horizontalHeaderItem(column)
        texts = [head.text() if head is not None else "", *(row[column] for row in self.texts())]
        width = max(map(self.fontMetrics().horizontalAdvance, texts)) + 2 * PAD + _SPARE_WIDTH
        self.horizontalHeader().setSectionResizeMode(column, QHeaderView.ResizeMode.Interactive)
        self.horizontalHeader().resizeSection(column, max(_MIN_COLUMN_WIDTH, width))


_STEPS = 1000


class ThresholdRow(QWidget):
    """Editor for a threshold from 0 to 1.

    Signals:
        changed(float): the new threshold.
    """

    changed = Signal(float)

    def __init__(self, text: str, name: str) -> None:
        """Create a row with a label `text` and an accessible name."""
        super().__init__()
        self._value = 0.0
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setRange(0, _STEPS)
        self.slider.setSingleStep(_STEPS // 100)
        self.slider.setPageStep(_STEPS // 10)
        self.slider.setMinimumWidth(90)
        self.slider.setAccessibleName(name)
        self.slider.setToolTip(tr("Left and Right change it by 0.01, PgUp and PgDown by 0.1"))
        self.number = indent_text(styled(QDoubleSpinBox(), name=tr("{name} as a number").format(name=name)))
        self.number.setRange(0.0, 1.0)
        self.number.setDecimals(3)
        self.number.setSingleStep(0.01)
        self.number.setLocale(locale())
        self.setLayout(hbox(field_label(text, self.number), (self.slider, 1), self.number))
        self.slider.valueChanged.connect(lambda value: self.set(value / _STEPS))
        self.number.valueChanged.connect(self.set)

    def value(self) -> float:
        """Return the threshold in full precision. The editor displays fewer digits."""
        return self._value

    def set(self, value: float) -> None:
        """Set the threshold and emit `changed`."""
        self._value = value
        with QSignalBlocker(self.slider), QSignalBlocker(self.number):
            self.slider.setValue(round(value * _STEPS))
            self.number.setValue(value)
        self.changed.emit(value)


_MAX_PLOT_WIDTH, _MAX_HEIGHT = 720, 620
"""Maximum size of a plot in pixels."""


class UnitPlot(ThemedPlot):
    """Plot whose axes range from 0 to 1. Its owner sets a drawing function, and can mark a point."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._marker = pg.ScatterPlotItem(size=11)
        self.setMinimumSize(200, 160)
        self.setMaximumSize(_MAX_PLOT_WIDTH, _MAX_HEIGHT)
        for side in ("bottom", "left"):
            self.set_bounds(side, 0, 1)
        self.setXRange(0, 1, padding=0.02)
        self.setYRange(0, 1, padding=0.03)

    def draw(self) -> None:
        """Draw the plot with the owner's drawing function, and the marker above it."""
        super().draw()
        self._marker.setBrush(theme.colors().text)
        self._marker.setPen(pg.mkPen(theme.colors().panel, width=1.5))
        self.addItem(self._marker)

    def draw_diagonal(self) -> None:
        """Draw a dashed line from the lower left to the upper right corner."""
        pen = pg.mkPen(theme.colors().text, width=1, style=Qt.PenStyle.DashLine)
        self.plot([0, 1], [0, 1], pen=pen)

    def mark(self, x: float | None, y: float | None) -> None:
        """Mark the point (x, y). If either is None, hide the marker."""
        is_known = x is not None and y is not None
        self._marker.setData([x] if is_known else [], [y] if is_known else [])


SPLITS = {"val": tr("validation"), "test": tr("test"), "train": tr("training"), "all": tr("all samples")}


def format_value(value: float | None, *, percent: bool = True) -> str:
    """Format a metric, as in "93.4%" if `percent` is True, or as in "0.2134". Return a dash for None."""
    return NOT_KNOWN if value is None else metric_value(value, percent=percent)


def format_interval(interval: Interval, *, percent: bool = True) -> str:
    """Format an interval, as in "91.8 – 94.9%" if `percent` is True, or return "" if it is unknown."""
    if interval.low is None or interval.high is None:
        return ""
    low, high = (metric_value(end, percent=percent) for end in (interval.low, interval.high))
    return f"{low.removesuffix('%')} – {high}"


def format_with_interval(interval: Interval | None) -> str:
    """Format a fraction and its interval, as in "93.4% (91.8 – 94.9%)". Return a dash for None."""
    if interval is None:
        return NOT_KNOWN
    bounds = format_interval(interval)
    return format_value(interval.value) + (f" ({bounds})" if bounds else "")


def list_metrics(evaluation: Evaluation) -> list[tuple[Measure, Interval]]:
    """Return the descriptions and values of the evaluation's metrics, in the order of `evaluation.entries`.

    Metrics without an entry follow, described by their ids.
    """
    measures = evaluation.measures
    described = [(entry, measures[entry.id]) for entry in evaluation.entries if entry.id in measures]
    described_ids = {entry.id for entry in evaluation.entries}
    others = [
        (Measure(name, name, higher_is_better=True), value)
        for name, value in measures.items()
        if name not in described_ids
    ]
    return described + others


def _parse_date(date: str) -> float:
    """Convert a date such as 2026-11-24T13:33:49Z to seconds since the epoch, or return 0 if it is invalid."""
    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError:
        return 0.0


def evaluation_title(evaluation: Evaluation) -> str:
    """Return date, split, dataset and checkpoint of an evaluation, as in "14:05 · test · flowers · best.pt"."""
    folder = shorten(Path(evaluation.dataset).name)
    date = format_time_or_date(_parse_date(evaluation.date))
    return " · ".join((date, SPLITS[evaluation.split], folder, shorten(evaluation.checkpoint)))


def describe_samples(evaluation: Evaluation) -> str:
    """Describe the samples, as in "1,200 samples of test in /data/flowers"."""
    return tr("{samples} of {split} in {dataset}").format(
        samples=counted(evaluation.samples, "sample"), split=SPLITS[evaluation.split], dataset=evaluation.dataset
    )


_MAX_SKIPPED_NAMES = 5


def describe_skipped(skipped: Sequence[SkippedSample | prediction.SkippedFile], count: int, noun: str) -> str:
    """Name the first of `count` skipped files, as in "Skipped 7 files: a.png: truncated; b.png: empty; and 5 more.".

    `noun` is the singular of the noun for the skipped items, such as "file".
    """
    named = "; ".join(f"{each.path}: {each.reason}" for each in skipped[:_MAX_SKIPPED_NAMES])
    more = count - min(_MAX_SKIPPED_NAMES, len(skipped))
    text = tr("Skipped {count}: {named}; and {more} more.") if more else tr("Skipped {count}: {named}.")
    return text.format(count=counted(count, noun), named=named, more=localized(more))


def format_classes(classes: Sequence[str], indices: Sequence[int], nothing: str = "none") -> str:
    """Join the names of the classes at `indices`, as in "rose, tulip × 2". Return `nothing` if there are no indices."""
    names = []
    for index, count in Counter(indices).items():
        name = _class_name(classes, index)
        names.append(f"{name} × {count}" if count > 1 else name)
    return ", ".join(names) or nothing


def format_sample_classes(classes: Sequence[str], column: Sequence[Sequence[int]] | None, row: int) -> str:
    """Return the names of a sample's classes, or "" if it has none.

    `column` contains the class indices of each sample. If it is None, the classes are unknown, and "" is returned.
    """
    return format_classes(classes, column[row], nothing="") if column is not None else ""


def _class_name(classes: Sequence[str], index: int) -> str:
    """Return the name of the class at `index`, or "none of them" for an index outside of the list."""
    return classes[index] if 0 <= index < len(classes) else tr("none of them")
