"""Views of the metrics of each class, the box errors and the calibration in an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.contract.inference.evaluation import BoxErrors, Calibration, Evaluation, Interval
from gui.format import localized
from gui.plots.themed import ThemedPlot
from gui.run.classes.view import ClassMetricsView
from gui.run.model.widgets import PlainTable, ThresholdRow, UnitPlot, format_interval, format_with_interval
from gui.sources.columns import Floats
from gui.sources.evaluations import OpenedEvaluation, count_confusion
from gui.sources.run_series import ClassMetrics
from gui.style import fills, theme
from gui.translation import tr
from gui.widgets.labels import caption, heading_label
from gui.widgets.layouts import make_scroll_area, vbox
from gui.widgets.tab_order import order_tabs


class ClassesPage(QWidget):
    """Page with the class metrics of an evaluation.

    Signals:
        cell_opened(int, int): the user wants to see the samples with these indices of true and predicted class.
    """

    cell_opened = Signal(int, int)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self.threshold = ThresholdRow(tr("Minimum confidence"), tr("Minimum confidence of predictions"))
        self.threshold.setToolTip(tr("Predictions below it count as none of the classes"))
        self.metrics_view = ClassMetricsView("evaluated_class", self.threshold)
        self.setLayout(vbox(self.metrics_view))
        order_tabs(self, (self.metrics_view.filter, self.metrics_view.table, self.threshold, self.metrics_view.matrix))
        self.threshold.changed.connect(lambda _value: self._show_metrics())
        self.metrics_view.matrix.cell_opened.connect(self.cell_opened)
        self.metrics_view.save.hide()  # the evaluation bar saves it
        self.metrics_view.matrix.setToolTip(tr("Click a cell or press Enter to show its samples"))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Show the class metrics of an evaluation, and set the confidence threshold to 0."""
        self._opened = opened
        self.metrics_view.reset()
        has_matrix = count_confusion(opened.samples, classes=0, threshold=0.0) is not None
        self.threshold.setVisible(has_matrix)  # the threshold affects only the confusion matrix
        self.threshold.set(0.0)  # its signal, which is always emitted, shows the metrics

    def _show_metrics(self) -> None:
        """Show the metrics per class, and the confusion matrix of predictions that reach the threshold."""
        if self._opened is None:
            return
        evaluation = self._opened.evaluation
        confusion = find_confusion(evaluation)
        threshold = self.threshold.value()
        if threshold > 0:
            confusion = count_confusion(self._opened.samples, len(evaluation.classes), threshold)
        measures = {title: _collect_values(column) for title, column in evaluation.per_class.items()}
        intervals = {title: _list_interval_limits(column) for title, column in evaluation.per_class.items()}
        self.metrics_view.show_metrics(
            evaluation.classes,
            # Epoch and step aren't displayed.
            ClassMetrics(epoch=0, step=0, measures=measures, confusion=confusion, intervals=intervals),
        )


def find_confusion(evaluation: Evaluation) -> np.ndarray | None:
    """Return the confusion matrix of the evaluation, int64 [n, n], or None if it has none or a malformed one."""
    width = len(evaluation.confusion)
    is_square = width > 0 and all(len(row) == width for row in evaluation.confusion)
    return np.array(evaluation.confusion, np.int64) if is_square else None


def _collect_values(column: Sequence[Interval | None]) -> Floats:
    """Return the values of a metric by class, float64 [n], with NaN for unknown ones."""
    return np.array([np.nan if each is None else each.value for each in column], np.float64)


def _list_interval_limits(column: Sequence[Interval | None]) -> Floats:
    """Return the limits of a metric's intervals by class, float64 [n, 2], with NaN for unknown ones."""
    limits = np.full((len(column), 2), np.nan)
    for row, interval in enumerate(column):
        if interval is not None and interval.low is not None and interval.high is not None:
            limits[row] = interval.low, interval.high
    return limits


class _ErrorKind(NamedTuple):
    title: str
    explanation: str


KINDS = {
    "classification": _ErrorKind(tr("Wrong class"), tr("Correct box, wrong class")),
    "localization": _ErrorKind(tr("Poor box"), tr("Correct class, but too little overlap with the object")),
    "both": _ErrorKind(tr("Wrong class and poor box"), tr("Too little overlap with an object of another class")),
    "duplicate": _ErrorKind(tr("Duplicate"), tr("Another detection of the object has a higher score")),
    "background": _ErrorKind(tr("Background"), tr("Overlaps no object")),
    "missed": _ErrorKind(tr("Missed"), tr("An object without a detection")),
}
SIZES = {"small": tr("Small (up to 32²)"), "medium": tr("Medium (up to 96²)"), "large": tr("Large")}
_BAR_HEIGHT = 30
"""Height in pixels of the bar for an error type."""


class BoxErrorsPage(QWidget):
    """Page with a bar for each error type, and average precision by object size."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: tuple[BoxErrors, ...] = ()
        self.title = heading_label(tr("Cost of each kind of error"))
        self.plot = ThemedPlot(tr("Kinds of errors"))
        self.plot.set_bounds("bottom", 0, 100)
        theme.scale_with_text(self.plot.setMaximumWidth, 720)
        self.plot.setLabel("bottom", tr("Points of AP50"))
        self.plot.getAxis("left").setStyle(tickLength=0)
        self.plot.set_drawing(self._draw)
        self.explanation = caption(
            tr("AP50 gain if all errors of a kind were fixed (TIDE), with their number in parentheses.")
        )
        self.sizes_title = heading_label(tr("By object size"))
        self.sizes = PlainTable(
            tr("Average precision by size"), (tr("Object area in pixels"), tr("Count"), "AP", "AP50")
        )
        content = vbox(self.title, self.plot, self.explanation, self.sizes_title, self.sizes, 1)
        self.setLayout(vbox(make_scroll_area(content)))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Show the AP lost to each kind of error and the AP for each object size. Parts without data are hidden."""
        evaluation = opened.evaluation
        # The plot's axis points up, so the costliest kind is at the top.
        self._errors = tuple(sorted(evaluation.box_errors, key=lambda each: each.ap_loss))
        for widget in (self.title, self.plot, self.explanation):
            widget.setVisible(bool(self._errors))
        self.plot.setFixedHeight(_BAR_HEIGHT * len(self._errors) + 50)
        self.plot.setAccessibleDescription("; ".join(map(_describe_errors, reversed(self._errors))))
        kinds = [KINDS[each.kind] for each in reversed(self._errors)]
        self.plot.setToolTip("\n".join(f"{kind.title}: {kind.explanation}" for kind in kinds))
        self.sizes.show_rows(
            [
                (
                    SIZES[each.size],
                    localized(each.objects),
                    format_with_interval(each.ap),
                    format_with_interval(each.ap50),
                )
                for each in evaluation.sizes
            ]
        )
        self.sizes_title.setVisible(bool(evaluation.sizes))
        self.plot.redraw()

    def _draw(self) -> None:
        """Draw a bar per kind of error, labeled with the kind and its count."""
        colors = theme.colors()
        self.plot.showGrid(x=True, y=False, alpha=0.15)
        self.plot.getAxis("left").setTextPen(colors.text)
        losses = [100 * each.ap_loss for each in self._errors]
        self.plot.addItem(
            pg.BarGraphItem(x0=0, y=list(range(len(losses))), width=losses, height=0.62, brush=colors.accent, pen=None)
        )
        ticks = [
            (index, f"{KINDS[each.kind].title} ({localized(each.count)})") for index, each in enumerate(self._errors)
        ]
        self.plot.getAxis("left").setTicks([ticks])
        self.plot.setXRange(0, max([*losses, 1.0]) * 1.05, padding=0)
        self.plot.setYRange(-0.5, max(0.5, len(losses) - 0.5), padding=0)


def _describe_errors(errors: BoxErrors) -> str:
    """Describe the errors of one kind: their count and the lost AP50, as in "Missed: 34, 12.0 points of AP50"."""
    return tr("{kind}: {count}, {points} points of AP50").format(
        kind=KINDS[errors.kind].title, count=localized(errors.count), points=localized(100 * errors.ap_loss, 1)
    )


class CalibrationPage(QWidget):
    """Page with a reliability diagram, the calibration error and the best temperature."""

    def __init__(self) -> None:
        super().__init__()
        self._calibration: Calibration | None = None
        self.error = caption(style="heading")
        self.plot = UnitPlot(tr("Reliability diagram"))
        self.plot.setLabel("bottom", tr("Confidence"))
        self.plot.setLabel("left", tr("Accuracy"))
        self.explanation = caption(
            tr(
                "Bars: accuracy of the predictions with that confidence, paler for fewer predictions. The dashed line is perfect "
                "calibration; below it the model is overconfident."
            )
        )
        self.temperature = caption(style="")
        self.setLayout(vbox(self.error, (self.plot, 100), self.explanation, self.temperature, 1))
        self.plot.set_drawing(self._draw)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Show calibration error, advised temperature and diagram, if the evaluation has a calibration."""
        self._calibration = calibration = opened.evaluation.calibration
        if calibration is None:
            return
        interval = format_interval(calibration.ece)
        error = (
            tr("Expected calibration error {percent}% ({interval})")
            if interval
            else tr("Expected calibration error {percent}%")
        )
        self.error.setText(error.format(percent=localized(100 * calibration.ece.value, 1), interval=interval))
        self.temperature.setText(describe_temperature(calibration))
        self.plot.setAccessibleDescription(_describe_bins(calibration))
        self.plot.recolor()

    def _draw(self) -> None:
        """Draw the accuracy of each confidence bin, paler for fewer predictions, and the diagonal."""
        calibration = self._calibration
        if calibration is None:
            return
        colors = theme.colors()
        max_count = max((each.count for each in calibration.bins), default=0)
        for each in calibration.bins:
            if each.count and each.accuracy is not None:
                fill = fills.blend(colors.accent, colors.panel, 0.35 + 0.65 * (each.count / max_count) ** 0.5)
                bar = pg.BarGraphItem(
                    x0=[each.low], x1=[each.high], height=[each.accuracy], brush=fill, pen=pg.mkPen(colors.accent)
                )
                self.plot.addItem(bar)
        self.plot.draw_diagonal()


def describe_temperature(calibration: Calibration) -> str:
    """Return a text about the effect of dividing the logits by the best temperature, or about why this is unknown."""
    temperature, before, after = calibration.temperature, calibration.ece_before, calibration.ece_after
    if temperature is None or before is None or after is None:
        return tr("There are too few samples to fit a temperature.")
    if after >= before:
        return tr(
            "Dividing the logits by a temperature wouldn't help: the best one, {temperature}, leaves the "
            "error at {percent}% on held-out samples."
        ).format(temperature=localized(temperature, 2), percent=localized(100 * after, 1))
    return tr(
        "The model is {verdict}: dividing its logits by a temperature of {temperature} lowers the error from {before} "
        "to {after}% on held-out samples. Predictions stay the same."
    ).format(
        verdict=tr("overconfident") if temperature > 1 else tr("underconfident"),
        temperature=localized(temperature, 2),
        before=localized(100 * before, 1),
        after=localized(100 * after, 1),
    )


def _describe_bins(calibration: Calibration) -> str:
    """Describe the bins of the reliability diagram for screen readers."""
    parts = [
        tr("confidence {low} to {high}: {accuracy:.0f}% of {count} correct").format(
            low=localized(each.low, 2),
            high=localized(each.high, 2),
            accuracy=100 * each.accuracy,
            count=localized(each.count),
        )
        for each in calibration.bins
        if each.accuracy is not None
    ]
    return "; ".join(parts)
