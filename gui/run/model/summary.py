"""What a model is worth in short: its measures with intervals, what was left out, and what confident predictions
alone are worth.
"""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import Evaluation
from engine.contract.problems import Problem
from engine.system.plain_text import shortened
from gui.format import counted, localised
from gui.run.model.plain_table import PlainTable
from gui.run.model.plot import caption
from gui.run.model.words import interval_words, measures_of, sample_count, value_words
from gui.sources.evaluations import OpenedEvaluation
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_panel

_SKIPPED_NAMED = 5


class SummaryPage(QWidget):
    """Shows the measures of an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.about = caption()
        self.measures = PlainTable("Metrics", ("Metric", "Value", "95 % interval"))
        self.no_intervals = caption("Too few samples for intervals.")
        self.remarks = ProblemLabel()
        self.confident = QLabel("If only confident predictions count")
        self.confident.setObjectName("heading")
        self.thresholds = PlainTable(
            "If only confident predictions count", ("Confidence from", "Share", "Precision", "Recall", "F1")
        )
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(8)
        for widget in (self.about, self.remarks, self.measures, self.no_intervals, self.confident, self.thresholds):
            column.addWidget(widget)
        column.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll_panel(inside))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        evaluation = opened.evaluation
        self.about.setText(shortened(f"{sample_count(evaluation)}, with {evaluation.checkpoint}"))
        rows = [
            (entry.title, value_words(each.value, entry.percent), interval_words(each, entry.percent))
            for entry, each in measures_of(evaluation)
        ]
        self.measures.show_rows(rows)
        self.no_intervals.setVisible(not any(row[2] for row in rows))
        self.remarks.show_problems(tuple(_remarks(evaluation)))
        self.thresholds.show_rows(
            [
                (localised(row.threshold, 2), *map(value_words, (row.share, row.precision, row.recall, row.f1)))
                for row in evaluation.thresholds
            ]
        )
        self.confident.setVisible(bool(evaluation.thresholds))


def _remarks(evaluation: Evaluation) -> list[Problem]:
    """What a reader of the measures should know."""
    told = [Problem("", text, severity="warning") for text in evaluation.warnings]
    if evaluation.skipped:
        named = "; ".join(f"{each.path}: {each.reason}" for each in evaluation.skipped[:_SKIPPED_NAMED])
        more = len(evaluation.skipped) - _SKIPPED_NAMED
        rest = f"; and {localised(more)} more" if more > 0 else ""
        count = counted(len(evaluation.skipped), "file")
        told.append(
            Problem(
                "",
                f"{count} could not be read and {_is(len(evaluation.skipped))} left out: {named}{rest}.",
                severity="warning",
            )
        )
    return told


def _is(count: int) -> str:
    return "was" if count == 1 else "were"
