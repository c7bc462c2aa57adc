"""Precision-recall and ROC curves of a class, and the outcomes at a threshold."""

from __future__ import annotations

from functools import partial

import pyqtgraph as pg
from PySide6.QtWidgets import QPushButton, QWidget

from engine.contract.inference.evaluation import ClassCurves
from engine.system.format import NOT_KNOWN
from gui.format import counted, localized
from gui.run.model.widgets import PlainTable, ThresholdRow, UnitPlot, format_value, format_with_interval
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import CurveCounts, OpenedEvaluation, Outcomes, read_outcomes
from gui.style import theme
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor
from gui.widgets.labels import caption, field_label
from gui.widgets.layouts import hbox, vbox

DEFAULT_THRESHOLD = 0.5
"""Threshold for a class without a best threshold."""


class CurvesPage(QWidget):
    """Page with the curves of the selected class, and a threshold. A worker thread reads the probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._outcomes: dict[int, Outcomes | CurveCounts] = {}  # by class index, once they have been read
        self.classes = ChoiceEditor([])
        self.classes.control.setAccessibleName(tr("Class of the curves"))
        self.about = caption()
        self.precision = UnitPlot(tr("Precision-recall curve"))
        self.precision.setLabel("bottom", tr("Recall"))
        self.precision.setLabel("left", tr("Precision"))
        self.roc = UnitPlot(tr("ROC curve"))
        self.roc.setLabel("bottom", tr("False positive rate"))
        self.roc.setLabel("left", tr("True positive rate"))
        self.threshold = ThresholdRow(tr("Threshold"), tr("Threshold"))
        self.best_threshold = QPushButton(tr("Best F1"))
        self.best_threshold.setToolTip(tr("The threshold with the highest F1 of this class"))
        self.counts = PlainTable(tr("Counts at the threshold"), ("", tr("Predicted"), tr("Not predicted")))
        self.scores = caption()
        self._lay_out()
        self.precision.set_drawing(self._draw_precision)
        self.roc.set_drawing(self._draw_roc)
        self.classes.edited.connect(self._show_class)
        self.threshold.changed.connect(lambda _value: self._show_outcomes())
        self.best_threshold.clicked.connect(self._set_best_threshold)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Offer the classes of an evaluation that have curves. The selection stays if the selected class has curves."""
        if not self._is_displayed(opened):
            self._outcomes = {}
        self._opened = opened
        names = opened.evaluation.classes
        indices = [curve.class_index for curve in opened.curves.classes]
        self.classes.reset_choices(
            [(str(index), _class_name(names, index), "") for index in indices], self.classes.value()
        )
        self._show_class()

    def _is_displayed(self, opened: OpenedEvaluation) -> bool:
        return self._opened is not None and self._opened.saved.folder == opened.saved.folder

    def curve(self) -> ClassCurves | None:
        """Return the curves of the visible class, or None if there are none."""
        curves = self._opened.curves.classes if self._opened is not None else ()
        return next((each for each in curves if str(each.class_index) == self.classes.value()), None)

    def _show_class(self) -> None:
        """Show both curves of the selected class, set its best threshold, and read its confusion counts."""
        curve = self.curve()
        if curve is None:
            return
        is_pooled = not curve.false_positive_rate  # pooled objects or pixels have no ROC curve
        # Pooled evaluations of objects have a column with true classes, and those of pixels have none.
        lists_objects = self._opened is not None and self._opened.samples.true is not None
        pooled_unit = "object" if lists_objects else "pixel"
        parts = [counted(curve.positives, pooled_unit if is_pooled else "sample")]
        if curve.average_precision is not None:
            parts.append(tr("average precision {value}").format(value=format_with_interval(curve.average_precision)))
        if curve.auc is not None:
            parts.append(tr("area under the ROC curve {value}").format(value=format_with_interval(curve.auc)))
        self.about.setText(" · ".join(parts))
        best = curve.best_threshold
        self.best_threshold.setEnabled(best is not None)
        self.best_threshold.setText(
            tr("Best F1") if best is None else tr("Best F1 at {best}").format(best=localized(best, 2))
        )
        self.roc.setVisible(not is_pooled)
        for plot in (self.precision, self.roc):
            plot.recolor()
        self._read_outcomes(curve)
        self.threshold.set(DEFAULT_THRESHOLD if best is None else best)

    def _set_best_threshold(self) -> None:
        """Set the threshold to the one with the highest F1."""
        curve = self.curve()
        if curve is not None and curve.best_threshold is not None:
            self.threshold.set(curve.best_threshold)

    # Outcomes at the threshold

    def _read_outcomes(self, curve: ClassCurves) -> None:
        """Read the confusion counts of a class in the background, unless they are cached."""
        opened = self._opened
        if opened is None or curve.class_index in self._outcomes:
            return
        in_background(
            partial(read_outcomes, opened, curve),
            self,
            partial(self._store_outcomes, opened, curve.class_index),
            partial(self._on_unreadable, opened, curve.class_index),
        )

    def _store_outcomes(self, opened: OpenedEvaluation, class_index: int, read: Outcomes | CurveCounts) -> None:
        """Cache and show `read`, the confusion counts of a class, unless another evaluation has been opened."""
        if self._is_displayed(opened):
            self._outcomes[class_index] = read
            self._show_outcomes()

    def _on_unreadable(self, opened: OpenedEvaluation, class_index: int, error: Exception) -> None:
        """Show why a class's confusion counts can't be read, unless another class or evaluation is visible."""
        curve = self.curve()
        if self._is_displayed(opened) and curve is not None and curve.class_index == class_index:
            text = tr("Couldn't read the probabilities: {error}")
            self.scores.setText(text.format(error=describe_error(error)))

    def _show_outcomes(self) -> None:
        """Show the confusion counts and scores at the threshold, and mark the threshold's point on both curves.

        While the counts are being read, show neither.
        """
        curve = self.curve()
        outcomes = self._outcomes.get(curve.class_index) if curve is not None else None
        if outcomes is None:
            for plot in (self.precision, self.roc):
                plot.mark(None, None)
            self.counts.show_rows([])
            self.scores.setText("")
            return
        counts = outcomes.at(self.threshold.value())
        self.precision.mark(counts.recall, counts.precision)
        self.roc.mark(counts.false_positive_rate, counts.recall)
        name = self.classes.titles.get(self.classes.value(), "")
        wrong = (
            NOT_KNOWN
            if counts.false_positives is None
            else tr("{count} wrong").format(count=localized(counts.false_positives))
        )
        negatives = (
            NOT_KNOWN
            if counts.true_negatives is None
            else tr("{count} right").format(count=localized(counts.true_negatives))
        )
        self.counts.show_rows(
            [
                (
                    name,
                    tr("{count} right").format(count=localized(counts.true_positives)),
                    tr("{count} missed").format(count=localized(counts.false_negatives)),
                ),
                (tr("not {name}").format(name=name), wrong, negatives),
            ]
        )
        parts = ((tr("Precision"), counts.precision), (tr("recall"), counts.recall), ("F1", counts.f1))
        self.scores.setText(" · ".join(f"{title} {format_value(value)}" for title, value in parts))

    def _draw_precision(self) -> None:
        """Draw the precision-recall curve of the selected class."""
        curve = self.curve()
        if curve is None:
            return
        self.precision.plot(list(curve.recall), list(curve.precision), pen=pg.mkPen(theme.colors().accent, width=2))

    def _draw_roc(self) -> None:
        """Draw the ROC curve of the selected class, and the diagonal of random guesses."""
        curve = self.curve()
        if curve is None:
            return
        self.roc.draw_diagonal()
        pen = pg.mkPen(theme.colors().accent, width=2)
        self.roc.plot(list(curve.false_positive_rate), list(curve.true_positive_rate), pen=pen)

    def _lay_out(self) -> None:
        self.setLayout(
            vbox(
                hbox(field_label(tr("Class"), self.classes.control), self.classes, (self.about, 1)),
                (hbox((self.precision, 1), (self.roc, 1), 0), 100),
                hbox((self.threshold, 1), self.best_threshold),
                self.scores,
                self.counts,
                1,
            )
        )


def _class_name(names: tuple[str, ...], index: int) -> str:
    """Return the name of the class at `index`, or its number if it has none."""
    return names[index] if index < len(names) else tr("class {number}").format(number=index)
