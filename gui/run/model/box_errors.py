"""What a detector's errors are: their kinds and what each costs, and how it does on objects by size."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import BoxErrors, Evaluation
from gui.format import localised
from gui.run.model.plain_table import PlainTable
from gui.run.model.plot import caption
from gui.run.model.words import with_interval
from gui.sources.evaluations import OpenedEvaluation
from gui.style import theme
from gui.widgets.scroll_panel import scroll_panel

KINDS = {
    "classification": ("Wrong class", "Well placed, but of another class"),
    "localisation": ("Badly placed", "Of the right class, but it overlaps the object too little"),
    "both": ("Wrong class and badly placed", "Overlaps an object of another class, and too little"),
    "duplicate": ("Found twice", "The object has a detection with a higher score"),
    "background": ("Nothing there", "Overlaps no object"),
    "missed": ("Missed", "An object that no detection has found"),
}
SIZES = {"small": "Small (up to 32²)", "medium": "Medium (up to 96²)", "large": "Large"}
_BAR = 30
"""Pixels of height for each kind."""


class BoxErrorsPage(QWidget):
    """Shows the kinds of errors as bars, and average precision by size."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: tuple[BoxErrors, ...] = ()
        self.title = QLabel("What each kind of error costs")
        self.title.setObjectName("heading")
        self.plot = _bars()
        self.reading = caption(
            "By how much AP50 would rise if all errors of that kind were mended (TIDE), with how many there are."
        )
        self.sizes_title = QLabel("By the size of objects")
        self.sizes_title.setObjectName("heading")
        self.sizes = PlainTable("Average precision by size", ("Objects, in pixels", "Count", "AP", "AP50"))
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(8)
        for widget in (self.title, self.plot, self.reading, self.sizes_title, self.sizes):
            column.addWidget(widget)
        column.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll_panel(inside))
        theme.notifier.changed.connect(self.recolor)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        evaluation = opened.evaluation
        self._errors = tuple(sorted(evaluation.box_errors, key=lambda each: each.ap_loss))
        for widget in (self.title, self.plot, self.reading):
            widget.setVisible(bool(self._errors))
        self.plot.setFixedHeight(_BAR * len(self._errors) + 50)
        self.plot.setAccessibleDescription("; ".join(map(error_words, reversed(self._errors))))
        self.plot.setToolTip("\n".join(f"{KINDS[e.kind][0]}: {KINDS[e.kind][1]}" for e in reversed(self._errors)))
        self.sizes.show_rows(
            [
                (SIZES[each.size], localised(each.objects), with_interval(each.ap), with_interval(each.ap50))
                for each in evaluation.sizes
            ]
        )
        self.sizes_title.setVisible(bool(evaluation.sizes))
        self.recolor()

    def recolor(self) -> None:
        colors = theme.colors()
        self.plot.setBackground(colors.panel)
        self.plot.showGrid(x=True, y=False, alpha=0.15)
        for side in ("bottom", "left"):
            self.plot.getAxis(side).setPen(colors.border)
            self.plot.getAxis(side).setTextPen(colors.muted if side == "bottom" else colors.text)
        self.plot.clear()
        losses = [100 * each.ap_loss for each in self._errors]
        places = list(range(len(losses)))
        self.plot.addItem(pg.BarGraphItem(x0=0, y=places, width=losses, height=0.62, brush=colors.accent, pen=None))
        ticks = [(at, f"{KINDS[each.kind][0]} ({localised(each.count)})") for at, each in enumerate(self._errors)]
        self.plot.getAxis("left").setTicks([ticks])
        self.plot.setXRange(0, max([*losses, 1.0]) * 1.05, padding=0)
        self.plot.setYRange(-0.5, max(0.5, len(losses) - 0.5), padding=0)


def error_words(errors: BoxErrors) -> str:
    """ "Missed: 34, 12.0 points of AP50"."""
    return f"{KINDS[errors.kind][0]}: {localised(errors.count)}, {localised(100 * errors.ap_loss, 1)} points of AP50"


def has_box_errors(evaluation: Evaluation) -> bool:
    """Whether there is anything to show."""
    return bool(evaluation.box_errors or evaluation.sizes)


def _bars() -> pg.PlotWidget:
    plot = pg.PlotWidget()
    plot.setAccessibleName("Kinds of errors")
    plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    plot.setMaximumWidth(720)
    plot.setMenuEnabled(False)
    plot.hideButtons()
    plot.setMouseEnabled(False, False)
    plot.setLabel("bottom", "Points of AP50")
    plot.getAxis("bottom").enableAutoSIPrefix(False)
    plot.getAxis("left").setStyle(tickLength=0)
    return plot
