"""Summary of an evaluation: metrics with intervals, warnings, and metrics above confidence thresholds."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QWidget

from engine.contract.inference.evaluation import Evaluation
from engine.contract.problems import Problem
from engine.system.plain_text import shortened
from gui.format import counted, localised
from gui.run.model.evaluation_format import describe_samples, format_interval, format_value, list_metrics
from gui.run.model.plain_table import PlainTable
from gui.sources.evaluations import OpenedEvaluation
from gui.translation import tr
from gui.widgets.labels import caption
from gui.widgets.layouts import scrolling, vbox
from gui.widgets.problem_label import ProblemLabel

_MAX_SKIPPED_NAMES = 5


class SummaryPage(QWidget):
    """Metrics of an evaluation with its warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.about = caption()
        self.metrics = PlainTable(tr("Metrics"), (tr("Metric"), tr("Value"), "95 % interval"))
        self.no_intervals = caption(tr("Too few samples for intervals."))
        self.warnings = ProblemLabel()
        self.confident = QLabel(tr("Confident predictions only"))
        self.confident.setObjectName("heading")
        self.thresholds = PlainTable(
            tr("Confident predictions only"),
            (tr("Minimum confidence"), tr("Predicted"), tr("Precision"), tr("Recall"), "F1"),
        )
        content = vbox(self.about, self.warnings, self.metrics, self.no_intervals, self.confident, self.thresholds, 1)
        self.setLayout(vbox(scrolling(content)))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        evaluation = opened.evaluation
        self.about.setText(shortened(f"{describe_samples(evaluation)}, with {evaluation.checkpoint}"))
        rows = [
            (entry.title, format_value(each.value, entry.percent), format_interval(each, entry.percent))
            for entry, each in list_metrics(evaluation)
        ]
        self.metrics.show_rows(rows)
        self.no_intervals.setVisible(not any(row[2] for row in rows))
        self.warnings.show_problems(tuple(_warnings(evaluation)))
        self.thresholds.show_rows(
            [
                (localised(row.threshold, 2), *map(format_value, (row.share, row.precision, row.recall, row.f1)))
                for row in evaluation.thresholds
            ]
        )
        self.confident.setVisible(bool(evaluation.thresholds))


def _warnings(evaluation: Evaluation) -> list[Problem]:
    """Return the warnings of the evaluation and the files that it skipped."""
    texts = list(evaluation.warnings)
    if evaluation.skipped:
        named = "; ".join(f"{each.path}: {each.reason}" for each in evaluation.skipped[:_MAX_SKIPPED_NAMES])
        more = len(evaluation.skipped) - _MAX_SKIPPED_NAMES
        rest = f"; and {localised(more)} more" if more > 0 else ""
        texts.append(
            tr("Skipped {counted}: {named}{rest}.").format(
                counted=counted(len(evaluation.skipped), "unreadable file"), named=named, rest=rest
            )
        )
    return [Problem("", text, severity="warning") for text in texts]
