"""Precision and recall of one class at every threshold, and what one threshold makes of the samples."""

from __future__ import annotations

from functools import partial

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import ClassCurves
from engine.system.format import NOT_KNOWN
from gui.format import counted, localised
from gui.run.model.plain_table import PlainTable
from gui.run.model.plot import SharePlot, caption
from gui.run.model.threshold import ThresholdRow
from gui.run.model.words import value_words, with_interval
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import CurvePoints, OpenedEvaluation, Outcomes, outcomes
from gui.style import theme
from gui.widgets.editors import ChoiceEditor

USUAL = 0.5
"""The threshold of a class without a best one."""


class CurvesPage(QWidget):
    """Shows the curves of the class that is chosen, and follows its threshold. A class's probabilities are read in
    the background.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._outcomes: dict[int, Outcomes | CurvePoints] = {}
        self.classes = ChoiceEditor([])
        self.classes.control.setAccessibleName("Class of the curves")
        self.about = caption()
        self.precision = SharePlot("Precision-recall curve")
        self.precision.setLabel("bottom", "Recall")
        self.precision.setLabel("left", "Precision")
        self.roc = SharePlot("ROC curve")
        self.roc.setLabel("bottom", "False positive rate")
        self.roc.setLabel("left", "True positive rate")
        self.threshold = ThresholdRow("Threshold", "Threshold")
        self.best = QPushButton("Best F1")
        self.best.setToolTip("The threshold with the highest F1 of this class")
        self.counts = PlainTable("Counts at the threshold", ("", "Predicted", "Not predicted"))
        self.words = caption()
        self._lay_out()
        self.precision.draws(self._draw_precision)
        self.roc.draws(self._draw_roc)
        self.classes.edited.connect(self._choose)
        self.threshold.moved.connect(lambda _value: self._follow())
        self.best.clicked.connect(self._take_best)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        before, same = self.classes.value(), self._opened is not None and self._opened.kept.folder == opened.kept.folder
        self._opened = opened
        self._outcomes = self._outcomes if same else {}
        names = opened.evaluation.classes
        told = [curve.class_index for curve in opened.curves.classes]
        self.classes.box.clear()
        self.classes.set_choices([(str(at), _name(names, at), "") for at in told])
        if before in self.classes.titles:
            self.classes.set_value(before)
        self._choose()

    def curve(self) -> ClassCurves | None:
        """That of the class on screen."""
        curves = self._opened.curves.classes if self._opened is not None else ()
        return next((each for each in curves if str(each.class_index) == self.classes.value()), None)

    def _choose(self) -> None:
        curve = self.curve()
        if curve is None:
            return
        objects = not curve.false_positive_rate
        of_objects = self._opened is not None and self._opened.samples.true is not None
        parts = [counted(curve.positives, "sample" if not objects else "object" if of_objects else "pixel")]
        if curve.average_precision is not None:
            parts.append(f"average precision {with_interval(curve.average_precision)}")
        if curve.auc is not None:
            parts.append(f"area under the ROC curve {with_interval(curve.auc)}")
        self.about.setText(" · ".join(parts))
        best = curve.best_threshold
        self.best.setEnabled(best is not None)
        self.best.setText("Best F1" if best is None else f"Best F1 at {localised(best, 2)}")
        self.roc.setVisible(not objects)
        for plot in (self.precision, self.roc):
            plot.recolor()
        self._read(curve)
        self.threshold.set(USUAL if best is None else best)

    def _take_best(self) -> None:
        curve = self.curve()
        if curve is not None and curve.best_threshold is not None:
            self.threshold.set(curve.best_threshold)

    # At the threshold

    def _read(self, curve: ClassCurves) -> None:
        opened = self._opened
        if opened is None or curve.class_index in self._outcomes:
            return
        in_background(
            partial(outcomes, opened, curve),
            self,
            lambda read: self._take(opened, curve.class_index, read),
            lambda error: self.words.setText(f"The probabilities can't be read: {describe_error(error)}"),
        )

    def _take(self, opened: OpenedEvaluation, class_index: int, read: Outcomes | CurvePoints) -> None:
        if self._opened is not None and opened.kept.folder == self._opened.kept.folder:
            self._outcomes[class_index] = read
            self._follow()

    def _follow(self) -> None:
        curve = self.curve()
        found = self._outcomes.get(curve.class_index) if curve is not None else None
        if found is None:
            for plot in (self.precision, self.roc):
                plot.mark(None, None)
            self.counts.show_rows([])
            self.words.setText("")
            return
        at = found.at(self.threshold.value())
        self.precision.mark(at.recall, at.precision)
        self.roc.mark(at.false_positive_rate, at.recall)
        name = self.classes.titles.get(self.classes.value(), "")
        wrong = NOT_KNOWN if at.false_positives is None else f"{localised(at.false_positives)} wrong"
        negatives = NOT_KNOWN if at.true_negatives is None else f"{localised(at.true_negatives)} right"
        self.counts.show_rows(
            [
                (name, f"{localised(at.true_positives)} right", f"{localised(at.false_negatives)} missed"),
                (f"not {name}", wrong, negatives),
            ]
        )
        parts = (("Precision", at.precision), ("recall", at.recall), ("F1", at.f1))
        self.words.setText(" · ".join(f"{title} {value_words(value)}" for title, value in parts))

    def _draw_precision(self) -> None:
        curve = self.curve()
        if curve is None:
            return
        self.precision.plot(list(curve.recall), list(curve.precision), pen=pg.mkPen(theme.colors().accent, width=2))

    def _draw_roc(self) -> None:
        curve = self.curve()
        if curve is None:
            return
        self.roc.diagonal()
        pen = pg.mkPen(theme.colors().accent, width=2)
        self.roc.plot(list(curve.false_positive_rate), list(curve.true_positive_rate), pen=pen)

    def _lay_out(self) -> None:
        label = QLabel("Class")
        label.setObjectName("muted")
        label.setBuddy(self.classes.control)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(label)
        top.addWidget(self.classes)
        top.addWidget(self.about, 1)
        plots = QHBoxLayout()
        plots.setSpacing(8)
        plots.addWidget(self.precision, 1)
        plots.addWidget(self.roc, 1)
        plots.addStretch(0)
        move = QHBoxLayout()
        move.setSpacing(8)
        move.addWidget(self.threshold, 1)
        move.addWidget(self.best)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addLayout(plots, 100)
        layout.addLayout(move)
        layout.addWidget(self.words, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self.counts)
        layout.addStretch(1)


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else f"class {index}"


def has_curves(opened: OpenedEvaluation) -> bool:
    """Whether there is anything to show."""
    return bool(opened.curves.classes)
