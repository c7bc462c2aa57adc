"""Errors of a detector by kind with their cost in AP50, and its precision by object size."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from engine.contract.inference.evaluation import BoxErrors, Evaluation
from gui.format import localised
from gui.run.model.evaluation_format import format_with_interval
from gui.run.model.plain_table import PlainTable
from gui.sources.evaluations import OpenedEvaluation
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import caption
from gui.widgets.layouts import scrolling, vbox

KINDS = {
    "classification": (tr("Wrong class"), tr("Correct box, wrong class")),
    "localisation": (tr("Poor box"), tr("Correct class, but too little overlap with the object")),
    "both": (tr("Wrong class and poor box"), tr("Too little overlap with an object of another class")),
    "duplicate": (tr("Duplicate"), tr("Another detection of the object has a higher score")),
    "background": (tr("Background"), tr("Overlaps no object")),
    "missed": (tr("Missed"), tr("An object without a detection")),
}
SIZES = {"small": tr("Small (up to 32²)"), "medium": tr("Medium (up to 96²)"), "large": tr("Large")}
_BAR_HEIGHT = 30
"""Pixels per kind of error."""


class BoxErrorsPage(QWidget):
    """Error kinds as bars, and average precision by object size."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: tuple[BoxErrors, ...] = ()
        self.title = QLabel(tr("Cost of each kind of error"))
        self.title.setObjectName("heading")
        self.plot = _make_plot()
        self.explanation = caption(
            tr("AP50 gain if all errors of a kind were fixed (TIDE), with their number in parentheses.")
        )
        self.sizes_title = QLabel(tr("By object size"))
        self.sizes_title.setObjectName("heading")
        self.sizes = PlainTable(
            tr("Average precision by size"), (tr("Object area in pixels"), tr("Count"), "AP", "AP50")
        )
        content = vbox(self.title, self.plot, self.explanation, self.sizes_title, self.sizes, 1)
        self.setLayout(vbox(scrolling(content)))
        theme.notifier.changed.connect(self.recolor)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        evaluation = opened.evaluation
        self._errors = tuple(sorted(evaluation.box_errors, key=lambda each: each.ap_loss))
        for widget in (self.title, self.plot, self.explanation):
            widget.setVisible(bool(self._errors))
        self.plot.setFixedHeight(_BAR_HEIGHT * len(self._errors) + 50)
        self.plot.setAccessibleDescription("; ".join(map(describe_errors, reversed(self._errors))))
        self.plot.setToolTip("\n".join(f"{KINDS[e.kind][0]}: {KINDS[e.kind][1]}" for e in reversed(self._errors)))
        self.sizes.show_rows(
            [
                (
                    SIZES[each.size],
                    localised(each.objects),
                    format_with_interval(each.ap),
                    format_with_interval(each.ap50),
                )
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
        self.plot.addItem(
            pg.BarGraphItem(x0=0, y=list(range(len(losses))), width=losses, height=0.62, brush=colors.accent, pen=None)
        )
        ticks = [(index, f"{KINDS[each.kind][0]} ({localised(each.count)})") for index, each in enumerate(self._errors)]
        self.plot.getAxis("left").setTicks([ticks])
        self.plot.setXRange(0, max([*losses, 1.0]) * 1.05, padding=0)
        self.plot.setYRange(-0.5, max(0.5, len(losses) - 0.5), padding=0)


def describe_errors(errors: BoxErrors) -> str:
    """Format errors such as "Missed: 34, 12.0 points of AP50"."""
    return f"{KINDS[errors.kind][0]}: {localised(errors.count)}, {localised(100 * errors.ap_loss, 1)} points of AP50"


def has_box_errors(evaluation: Evaluation) -> bool:
    """Return True if the evaluation has errors by kind or metrics by size."""
    return bool(evaluation.box_errors or evaluation.sizes)


def _make_plot() -> pg.PlotWidget:
    plot = pg.PlotWidget()
    plot.setAccessibleName(tr("Kinds of errors"))
    plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    plot.setMaximumWidth(720)
    plot.setMenuEnabled(False)
    plot.hideButtons()
    plot.setMouseEnabled(False, False)
    plot.setLabel("bottom", tr("Points of AP50"))
    plot.getAxis("bottom").enableAutoSIPrefix(False)
    plot.getAxis("left").setStyle(tickLength=0)
    return plot
