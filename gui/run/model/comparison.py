"""Two evaluations of the same samples side by side: what differs, and which samples one alone has right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import Comparison, Difference, McNemar
from engine.contract.problems import Problem
from engine.runs.comparison import compare
from engine.system.format import listed
from gui.format import counted, localised
from gui.run.model.plain_table import PlainTable
from gui.run.model.plot import caption
from gui.run.model.words import evaluation_title, value_words
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import ComparableEvaluation, OpenedEvaluation, comparable_evaluations
from gui.titles import short_title
from gui.widgets.editors import ChoiceEditor
from gui.widgets.empty_state import EmptyState
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_panel

NONE, COMPARED = range(2)
EMPTY = (
    "Nothing to compare with yet.\n\nEvaluate another checkpoint, or another run, on the same split of the same folder:\n"
    "it can then be chosen here."
)


class ComparisonPage(QWidget):
    """Compares an evaluation with another of the same samples, which is chosen.

    Signals: samples_wanted(object, str) - the samples with these paths are asked for, with what they are in words.
    """

    samples_wanted = Signal(object, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rivals: dict[str, ComparableEvaluation] = {}
        self.comparison: Comparison | None = None
        self.rival = ChoiceEditor([])
        self.rival.control.setAccessibleName("Evaluation to compare with")
        self.about = caption()
        self.differences = PlainTable("Differences", ("Metric", "This", "Other", "Difference", "95 % interval"))
        self.verdict = caption(kind="")
        self.test = caption()
        self.mine, self.others = (QPushButton(f"Show what only {who} has right") for who in ("this one", "the other"))
        self.trouble = ProblemLabel()
        self.stack = QStackedWidget()
        self._lay_out()
        self.rival.edited.connect(self._compare)
        self.mine.clicked.connect(lambda: self._ask(self.mine))
        self.others.clicked.connect(lambda: self._ask(self.others))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        self._opened = opened
        self.comparison = None
        self._clear()
        self.look()

    def look(self) -> None:
        """Looks which evaluations there are to compare with."""
        opened = self._opened
        if opened is not None:
            in_background(
                partial(comparable_evaluations, opened.evaluation),
                self,
                partial(self._offer, opened),
                partial(self._fail, opened),
            )

    def _offer(self, opened: OpenedEvaluation, rivals: Sequence[ComparableEvaluation]) -> None:
        if opened is not self._opened:
            return
        chosen = self.rival.box.currentData()
        self._rivals = {str(rival.kept.folder): rival for rival in rivals}
        self.rival.blockSignals(True)
        self.rival.box.clear()
        self.rival.set_choices([(key, _title(rival, opened), key) for key, rival in self._rivals.items()])
        self.rival.box.setCurrentIndex(max(0, self.rival.box.findData(chosen)))
        self.rival.blockSignals(False)
        self.stack.setCurrentIndex(COMPARED if rivals else NONE)
        self._compare()

    def _compare(self) -> None:
        opened, rival = self._opened, self._rivals.get(self.rival.value())
        if opened is None or rival is None:
            return
        in_background(
            partial(compare, rival.kept, opened.kept), self, partial(self._take, opened), partial(self._fail, opened)
        )

    def _take(self, opened: OpenedEvaluation, comparison: Comparison) -> None:
        if opened is not self._opened:
            return
        self.comparison = comparison
        self.trouble.show_problems(())
        self.about.setText(
            f"{counted(comparison.samples, 'sample')} that both have. Differences are this evaluation's less the other's, of percentages in points."
        )
        self.differences.show_rows([_row(each) for each in comparison.differences])
        self.verdict.setText(_verdict(comparison.differences))
        self._show_test(comparison.mcnemar)
        for button, paths, who in (
            (self.mine, comparison.only_second, "this one"),
            (self.others, comparison.only_first, "the other"),
        ):
            button.setVisible(paths is not None)
            button.setEnabled(bool(paths))
            button.setText(f"Show {localised(len(paths or ()))} that only {who} has right")

    def _show_test(self, test: McNemar | None) -> None:
        self.test.setVisible(test is not None)
        if test is not None:
            self.test.setText(
                f"{counted(test.only_second, 'sample')} only this one has right, {localised(test.only_first)} only the other. If both "
                f"erred equally often, a difference as large would come with a probability of {_p(test.p)} (McNemar's exact test)."
            )

    def _fail(self, opened: OpenedEvaluation, error: Exception) -> None:
        if opened is self._opened:
            self._clear()
            self.stack.setCurrentIndex(COMPARED)
            text = str(error) if isinstance(error, ValueError) else describe_error(error)
            self.trouble.show_problems((Problem("", f"They can't be compared: {text.rstrip('.')}."),))

    def _clear(self) -> None:
        self.differences.show_rows([])
        for label in (self.about, self.verdict, self.test):
            label.setText("")
        for button in (self.mine, self.others):
            button.hide()

    def _ask(self, button: QPushButton) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        mine = button is self.mine
        paths = comparison.only_second if mine else comparison.only_first
        told = "that only this evaluation has right" if mine else "that only the other evaluation has right"
        self.samples_wanted.emit(frozenset(paths or ()), f"{counted(len(paths or ()), 'sample')} {told}")

    def _lay_out(self) -> None:
        empty = EmptyState(EMPTY)
        label = QLabel("Compare with")
        label.setObjectName("muted")
        label.setBuddy(self.rival.control)
        top, buttons = QHBoxLayout(), QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(label)
        top.addWidget(self.rival, 1)
        for button in (self.mine, self.others):
            buttons.addWidget(button)
        buttons.addStretch(1)
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(8)
        column.addLayout(top)
        for widget in (self.trouble, self.about, self.differences, self.verdict, self.test):
            column.addWidget(widget)
        column.addLayout(buttons)
        column.addStretch(1)
        self.stack.addWidget(empty)
        self.stack.addWidget(scroll_panel(inside))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.stack)
        self._clear()


def _title(rival: ComparableEvaluation, opened: OpenedEvaluation) -> str:
    """With its run, where that is another."""
    title = evaluation_title(rival.kept.evaluation)
    return title if rival.kept.evaluation.run == opened.evaluation.run else f"{rival.title} · {title}"


def _row(each: Difference) -> tuple[str, ...]:
    percent, between = each.entry.percent, each.difference
    return (
        each.entry.title,
        value_words(each.second, percent),
        value_words(each.first, percent),
        _signed(between.value, percent),
        f"{_signed(between.low, percent)} to {_signed(between.high, percent)}"
        if between.low is not None and between.high is not None
        else "",
    )


def _signed(value: float | None, percent: bool) -> str:
    """ "+1.2" points, or "−0.0312"."""
    if value is None:
        return ""
    size = localised(100 * abs(value), 1) if percent else localised(abs(value), 4)
    return f"{'−' if value < 0 else '+'}{size}"


def _verdict(differences: Sequence[Difference]) -> str:
    """Which measures are really better and worse, by intervals without zero."""
    better: list[str] = []
    worse: list[str] = []
    for each in differences:
        low, high = each.difference.low, each.difference.high
        if low is None or high is None or low <= 0 <= high:
            continue
        gains = (low > 0) == each.entry.higher_is_better
        (better if gains else worse).append(short_title(each.entry.title))
    if not better and not worse:
        return "No difference is larger than chance explains: every interval contains 0."
    parts = [f"better in {listed(better)}" if better else "", f"worse in {listed(worse)}" if worse else ""]
    return f"This evaluation is {' and '.join(filter(None, parts))}: those intervals do not contain 0."


def _p(p: float) -> str:
    return f"less than {localised(0.001, 3)}" if p < 0.001 else localised(p, 3)
