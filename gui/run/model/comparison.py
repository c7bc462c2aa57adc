"""Comparison of two evaluations of the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QStackedWidget, QWidget

from engine.contract.inference.evaluation import Comparison, Difference, McNemar
from engine.contract.problems import Problem
from engine.runs.evaluations import compare
from engine.system.format import listed
from gui.format import counted, localized, metric_value
from gui.run.model.widgets import PlainTable, evaluation_title, format_value
from gui.sources.background import describe_error, in_background
from gui.sources.evaluations import ComparableEvaluation, OpenedEvaluation, find_comparable_evaluations
from gui.titles import shorten_title
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor
from gui.widgets.labels import EmptyState, ProblemLabel, caption, field_label
from gui.widgets.layouts import hbox, make_scroll_area, vbox

NONE, COMPARED = range(2)
EMPTY = tr(
    "Nothing to compare with yet.\n\nEvaluate another checkpoint or run on the same split of the same folder,\n"
    "then choose it here."
)


class ComparisonPage(QWidget):
    """Comparison of an evaluation with another one that the user selects.

    Signals:
        samples_requested(frozenset, str): the user wants to see the samples with these paths. The string describes
            them.
    """

    samples_requested = Signal(object, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._comparable: dict[str, ComparableEvaluation] = {}  # by folder, which is the value of the choice
        self.comparison: Comparison | None = None
        self.other_choice = ChoiceEditor([])
        self.other_choice.control.setAccessibleName(tr("Evaluation to compare with"))
        self.about = caption()
        self.differences = PlainTable(
            tr("Differences"), (tr("Metric"), tr("This"), tr("Other"), tr("Difference"), tr("95% interval"))
        )
        self.verdict = caption(style="")
        self.significance = caption()
        self.show_only_this, self.show_only_other = (
            QPushButton(tr("Show samples that only {who} got right").format(who=evaluation))
            for evaluation in (tr("this one"), tr("the other"))
        )
        self.problem = ProblemLabel()
        self.stack = QStackedWidget()
        self._lay_out()
        self.other_choice.edited.connect(self._compare)
        self.show_only_this.clicked.connect(lambda: self._request_samples(self.show_only_this))
        self.show_only_other.clicked.connect(lambda: self._request_samples(self.show_only_other))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Set the evaluation to compare, and look for others of the same samples to compare it with."""
        self._opened = opened
        self.comparison = None
        self._clear()
        self.refresh()

    def refresh(self) -> None:
        """Find other evaluations of the same samples on a worker thread, and offer them for comparison."""
        opened = self._opened
        if opened is not None:
            in_background(
                partial(find_comparable_evaluations, opened.evaluation),
                self,
                partial(self._show_choices, opened),
                partial(self._show_error, opened, None),
            )

    def _show_choices(self, opened: OpenedEvaluation, others: Sequence[ComparableEvaluation]) -> None:
        """Offer `others` for comparison with `opened`, unless another evaluation has been opened since."""
        if opened is not self._opened:
            return
        self._comparable = {str(other.saved.folder): other for other in others}
        choices = [(key, _format_title(other, opened), key) for key, other in self._comparable.items()]
        self.other_choice.reset_choices(choices, self.other_choice.value())
        self.stack.setCurrentIndex(COMPARED if others else NONE)
        self._compare()

    def _compare(self) -> None:
        """Compare the open evaluation with the selected one on a worker thread, and show the result."""
        folder = self.other_choice.value()
        opened, other = self._opened, self._comparable.get(folder)
        if opened is None or other is None:
            return
        in_background(
            partial(compare, other.saved, opened.saved),
            self,
            partial(self._show_comparison, opened, folder),
            partial(self._show_error, opened, folder),
        )

    def _is_displayed(self, opened: OpenedEvaluation, folder: str | None) -> bool:
        """Return True if `opened` and the evaluation in `folder`, or any one if it is None, are still selected."""
        return opened is self._opened and folder in (None, self.other_choice.value())

    def _show_comparison(self, opened: OpenedEvaluation, folder: str, comparison: Comparison) -> None:
        """Show the `comparison` of `opened` with the evaluation in `folder`, unless others have been selected since.

        Buttons for samples are hidden if the samples can't be matched, and disabled if there are none.
        """
        if not self._is_displayed(opened, folder):
            return
        self.comparison = comparison
        self.problem.show_problems(())
        self.about.setText(
            tr("{samples} in both. Differences: this minus the other, in percentage points.").format(
                samples=counted(comparison.samples, "sample")
            )
        )
        self.differences.show_rows([_make_difference_row(each) for each in comparison.differences])
        self.verdict.setText(_describe_verdict(comparison.differences))
        self._show_significance(comparison.mcnemar)
        # The visible evaluation is the second one of the comparison.
        for button, paths, evaluation in (
            (self.show_only_this, comparison.only_second, tr("this one")),
            (self.show_only_other, comparison.only_first, tr("the other")),
        ):
            button.setVisible(paths is not None)
            button.setEnabled(bool(paths))
            button.setText(
                tr("Show {count} that only {evaluation} got right").format(
                    count=localized(len(paths or ())), evaluation=evaluation
                )
            )

    def _show_significance(self, test: McNemar | None) -> None:
        """Show the result of McNemar's test in a sentence. If `test` is None, hide the sentence."""
        self.significance.setVisible(test is not None)
        if test is not None:
            self.significance.setText(
                tr(
                    "{only_second} only this one got right, {only_first} only the other. If both "
                    "erred equally often, the probability of such a difference would be {p} (McNemar's exact test)."
                ).format(
                    only_second=counted(test.only_second, "sample"),
                    only_first=localized(test.only_first),
                    p=_format_p(test.p),
                )
            )

    def _show_error(self, opened: OpenedEvaluation, folder: str | None, error: Exception) -> None:
        """Show why the comparison failed, unless other evaluations have been selected since."""
        if self._is_displayed(opened, folder):
            self._clear()
            self.stack.setCurrentIndex(COMPARED)
            text = str(error) if isinstance(error, ValueError) else describe_error(error)
            message = tr("Couldn't compare them: {reason}.").format(reason=text.rstrip("."))
            self.problem.show_problems((Problem("", message),))

    def _clear(self) -> None:
        """Clear the table of differences, the texts, and the buttons for samples."""
        self.differences.show_rows([])
        for label in (self.about, self.verdict, self.significance):
            label.setText("")
        for button in (self.show_only_this, self.show_only_other):
            button.hide()

    def _request_samples(self, button: QPushButton) -> None:
        """Request the samples that only one of the evaluations got right, according to the pressed button."""
        comparison = self.comparison
        if comparison is None:
            return
        is_this = button is self.show_only_this
        paths = (comparison.only_second if is_this else comparison.only_first) or ()
        evaluation = tr("this evaluation") if is_this else tr("the other evaluation")
        self.samples_requested.emit(
            frozenset(paths),
            tr("{samples} that only {evaluation} got right").format(
                samples=counted(len(paths), "sample"), evaluation=evaluation
            ),
        )

    def _lay_out(self) -> None:
        content = vbox(
            hbox(field_label(tr("Compare with"), self.other_choice.control), (self.other_choice, 1)),
            self.problem,
            self.about,
            self.differences,
            self.verdict,
            self.significance,
            hbox(self.show_only_this, self.show_only_other, 1),
            1,
        )
        self.stack.addWidget(EmptyState(EMPTY))
        self.stack.addWidget(make_scroll_area(content))
        self.setLayout(vbox(self.stack))


def _format_title(other: ComparableEvaluation, opened: OpenedEvaluation) -> str:
    """Return the title of `other`, preceded by the title of its run unless that is the run of `opened`."""
    title = evaluation_title(other.saved.evaluation)
    return title if other.saved.evaluation.run == opened.evaluation.run else f"{other.title} · {title}"


def _make_difference_row(compared: Difference) -> tuple[str, ...]:
    """Return metric, value of this evaluation, value of the other one, difference, and its interval ("" if unknown)."""
    percent, difference = compared.entry.percent, compared.difference
    interval = ""
    if difference.low is not None and difference.high is not None:
        low, high = (_format_difference(end, percent=percent) for end in (difference.low, difference.high))
        interval = tr("{low} to {high}").format(low=low, high=high)
    return (
        compared.entry.title,
        format_value(compared.second, percent=percent),  # the visible evaluation is the second one
        format_value(compared.first, percent=percent),
        _format_difference(difference.value, percent=percent),
        interval,
    )


def _format_difference(value: float, *, percent: bool) -> str:
    """Format the difference of two metrics, as in "+1.2" (percentage points) if `percent`, or as in "−0.0312"."""
    return f"{'−' if value < 0 else '+'}{metric_value(abs(value), percent=percent).removesuffix('%')}"


def _describe_verdict(differences: Sequence[Difference]) -> str:
    """Name the metrics in which this evaluation is significantly better or worse than the other one.

    A difference is significant if its interval excludes 0.
    """
    better: list[str] = []
    worse: list[str] = []
    for each in differences:
        low, high = each.difference.low, each.difference.high
        if low is None or high is None or low <= 0 <= high:  # not significant
            continue
        is_better = (low > 0) == each.entry.higher_is_better
        (better if is_better else worse).append(shorten_title(each.entry.title))
    if not better and not worse:
        return tr("No difference is significant: every interval contains 0.")
    if not worse:
        text = tr("This evaluation is better in {better}: those intervals exclude 0.")
    elif not better:
        text = tr("This evaluation is worse in {worse}: those intervals exclude 0.")
    else:
        text = tr("This evaluation is better in {better} and worse in {worse}: those intervals exclude 0.")
    return text.format(better=listed(better) if better else "", worse=listed(worse) if worse else "")


def _format_p(p: float) -> str:
    """Format a probability with three decimals, or as "less than 0.001"."""
    return tr("less than {limit}").format(limit=localized(0.001, 3)) if p < 0.001 else localized(p, 3)
