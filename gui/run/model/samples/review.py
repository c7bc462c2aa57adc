"""Review of an evaluation: probable label errors, duplicate images, and marked samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QComboBox, QPushButton, QWidget

from engine.contract.inference.review import MarkedSample, Review, ReviewedSample, ReviewRequest, decode_review
from engine.runs.evaluations import SavedEvaluation
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.actions import Action, bind
from gui.format import counted, localized
from gui.run.model.samples.progress_line import ProgressLine
from gui.run.model.widgets import format_sample_classes
from gui.run.request_pages import InferenceChild
from gui.sources.background import ignore_os_error, in_background
from gui.sources.evaluations import NO_CLASS, Numbers, OpenedEvaluation, SampleTable
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor
from gui.widgets.labels import caption, field_label
from gui.widgets.layouts import hbox, vbox

ALL, LABELS, DUPLICATES = "all", "labels", "duplicates"


class Suspects(NamedTuple):
    """Suspicious samples: rows in order, two caption lines for each, and a summary."""

    rows: tuple[int, ...]
    captions: dict[int, tuple[str, str]]
    summary: str


class _ReadReview(NamedTuple):
    """Review from a file, and the rows of its evaluation by split and path."""

    review: Review
    rows_by_path: dict[tuple[str, str], int]


class ReviewBar(QWidget):
    """Bar with a button that reviews the samples, and a selection of the suspicious samples to show.

    Signals:
        changed(): `suspects` returns other samples.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rows_by_path: dict[tuple[str, str], int] = {}  # row numbers by split and path
        self.review: Review | None = None
        self.child = InferenceChild(tr("The review"), self)
        self.review_action = Action(
            self,
            "review",
            tr("Find wrong labels"),
            tr("Look for labels worth checking and for duplicate images"),
        )
        self.selection = ChoiceEditor([(ALL, tr("all samples"), "")])
        self.selection.control.setAccessibleName(tr("Samples to show"))
        self.selection.box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.progress_line = ProgressLine(tr("Reviewing the samples"))
        self.origin = caption()
        self._label = field_label(tr("Show"), self.selection.control)
        top = hbox(self._label, self.selection, bind(QPushButton(), self.review_action), 1)
        self.setLayout(vbox(top, self.origin, self.progress_line, spacing=4))
        self.review_action.on_trigger(self._start)
        self.selection.edited.connect(self.changed)
        self.child.done.connect(self._on_done)
        self.progress_line.follow(self.child)

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """Load the newest review of the evaluation's samples, if there is one."""
        self.child.cancel()
        self.progress_line.end()
        self._opened, self.review = opened, None
        self._show_choices()
        in_background(partial(_read_newest_review, opened), self, partial(self._set_review, opened), ignore_os_error)

    def choose_all(self) -> None:
        """Select all samples, without emitting `changed`."""
        with QSignalBlocker(self.selection):
            self.selection.set_value(ALL)

    def suspects(self) -> Suspects | None:
        """Return the selected suspicious samples, or None for all samples."""
        if self.review is None or self.selection.value() == ALL:
            return None
        if self.selection.value() == LABELS:
            return self._list_wrong_labels(self.review)
        return self._list_duplicates(self.review)

    def suggestions(self) -> dict[int, str]:
        """Return the suggested labels, by row, for samples whose labels are probably wrong."""
        suggestions = {}
        for issue in self.review.label_issues if self.review is not None else ():
            row = self._find_row(issue.sample)
            # A label that is only missing or only superfluous isn't replaced.
            if row is not None and issue.given and issue.suggested:
                suggestions[row] = issue.suggested
        return suggestions

    @property
    def is_model_weak(self) -> bool:
        """True if a review has found that the model is too weak to tell wrong labels from its own mistakes."""
        return self.review is not None and self.review.is_model_weak

    def close_work(self) -> None:
        """Stop the review when the window closes."""
        self.child.close()

    def _start(self) -> None:
        """Review the samples of the evaluation in a child process."""
        opened = self._opened
        if opened is not None:
            evaluations = (str(opened.saved.folder.absolute()),)
            # The page already lists the worst samples itself.
            self.child.start(ReviewRequest(run=str(opened.run_folder), evaluations=evaluations, worst=0))

    def _on_done(self, path: str) -> None:
        """Read the new review in the file `path` on a worker thread, and show it."""
        opened = self._opened
        self.progress_line.end()
        if opened is not None:
            in_background(
                partial(_read_review, opened, Path(path)), self, partial(self._show_new, opened), ignore_os_error
            )

    def _show_new(self, opened: OpenedEvaluation, result: _ReadReview | None) -> None:
        """Show a review that has just been completed, unless it is damaged (None).

        If the review has found label errors, they are selected in the list of samples to show.
        """
        self._set_review(opened, result)
        if result is not None and result.review.label_issues:
            self.selection.set_value(LABELS)

    def _set_review(self, opened: OpenedEvaluation, result: _ReadReview | None) -> None:
        """Show the review of `opened`, and emit `changed`.

        Nothing happens if another evaluation has been opened since, or if the review is damaged (None).
        """
        if opened is self._opened and result is not None:
            self.review, self._rows_by_path = result
            self._show_choices()

    def _show_choices(self) -> None:
        """Offer the groups of suspicious samples with their counts, and show where the review comes from.

        Emits `changed`.
        """
        review = self.review
        choices = [(ALL, tr("all samples"), "")]
        if review is not None:
            choices.append(
                (LABELS, tr("labels worth checking ({count})").format(count=localized(len(review.label_issues))), "")
            )
            choices.append(
                (DUPLICATES, tr("duplicate images ({count})").format(count=localized(len(review.duplicates))), "")
            )
            self.origin.setText(" ".join((review.origin, *review.missing)))
        self.origin.setVisible(review is not None)
        for widget in (self._label, self.selection):
            widget.setVisible(review is not None)
        self.selection.reset_choices(choices)
        self.changed.emit()

    def _find_row(self, sample: ReviewedSample) -> int | None:
        """Return the row of a sample in the evaluation, or None if it isn't among its samples."""
        return self._rows_by_path.get((sample.split, sample.path))

    def _list_wrong_labels(self, review: Review) -> Suspects:
        """Return the samples whose labels are worth checking, with a text on their number.

        Their captions show given and suggested label, and the model's probabilities of both. Samples that are not in
        the evaluation are left out.
        """
        captions: dict[int, tuple[str, str]] = {}
        for issue in review.label_issues:
            row = self._find_row(issue.sample)
            if row is not None:
                # With several labels per sample, a label may also be missing or superfluous.
                suggested = issue.suggested or tr("none")
                change = (
                    f"{issue.given} → {suggested}" if issue.given else tr("no {label}").format(label=issue.suggested)
                )
                probabilities = f"{100 * issue.probability:.0f}% → {100 * issue.suggested_probability:.0f}%"
                captions[row] = change, probabilities
        text = (
            tr("{labels} worth checking; the model is too weak to tell wrong labels from its own mistakes")
            if review.is_model_weak
            else tr("{labels} worth checking; about {count} wrong in total")
        ).format(labels=counted(len(captions), "label"), count=localized(review.expected_errors))
        return Suspects(tuple(captions), captions, text)

    def _list_duplicates(self, review: Review) -> Suspects:
        """Return the duplicate images in the review. Both images of a pair are next to each other.

        Only samples of this evaluation are included.
        """
        captions: dict[int, tuple[str, str]] = {}
        for pair in review.duplicates:
            for sample, other in ((pair.first, pair.second), (pair.second, pair.first)):
                row = self._find_row(sample)
                if row is not None:
                    relation = tr("the same as {file}") if pair.exact else tr("similar to {file}")
                    label = tr("other label") if pair.labels_differ else other.split
                    captions[row] = relation.format(file=Path(other.path).name), label
        return Suspects(
            tuple(captions),
            captions,
            tr("{pairs} of duplicate images").format(pairs=counted(len(review.duplicates), "pair")),
        )


def _read_review(opened: OpenedEvaluation, path: Path) -> _ReadReview | None:
    """Return the review in `path`, or None if it is damaged."""
    try:
        review = decode_review(read_file(path, MAX_RESULT_BYTES))
    except NOT_DECODED:
        return None
    samples = opened.samples
    rows_by_path = {key: row for row, key in enumerate(zip(samples.splits, samples.paths, strict=True))}
    return _ReadReview(review, rows_by_path)


def _read_newest_review(opened: OpenedEvaluation) -> _ReadReview | None:
    """Return the newest review of this evaluation alone, or None if there is none."""
    evaluations = (str(opened.saved.folder.absolute()),)
    results = [_read_review(opened, file) for file in (opened.run_folder / "reviews").glob("*.json")]
    matching = [result for result in results if result is not None and result.review.evaluations == evaluations]
    return max(matching, key=lambda result: result.review.date, default=None)


MARKS_FILE = "marked.json"
"""File in an evaluation's folder that contains the numbers of the marked samples."""


def read_marks(saved: SavedEvaluation) -> set[int]:
    """Return the rows of the marked samples, or an empty set if the file is missing or damaged."""
    try:
        return set(msgspec.json.decode(read_file(saved.folder / MARKS_FILE, MAX_RESULT_BYTES), type=list[int]))
    except (OSError, *NOT_DECODED):
        return set()


def write_marks(saved: SavedEvaluation, marked: Sequence[int]) -> None:
    """Save the rows of the marked samples. Raises OSError."""
    paths.write_atomically(saved.folder / MARKS_FILE, msgspec.json.encode(sorted(marked)))


def sample_file(opened: OpenedEvaluation, row: int) -> Path:
    """Return the path of a sample's file. The file may not exist."""
    return Path(opened.evaluation.dataset) / opened.samples.paths[row]


def make_marks(
    opened: OpenedEvaluation, rows: Sequence[int], suggestions: Mapping[int, str], *, is_model_weak: bool
) -> tuple[MarkedSample, ...]:
    """Convert the samples at `rows` to marks for the engine, with the suggested labels of some rows.

    If `is_model_weak`, a label that the model disagrees with is called worth checking rather than probably wrong.
    """
    samples, classes = opened.samples, opened.evaluation.classes
    marks = []
    for row in rows:
        suggestion = suggestions.get(row, "")
        if not suggestion:
            reason = tr("marked")
        elif is_model_weak:
            reason = tr("a label worth checking")
        else:
            reason = tr("probably {suggestion}").format(suggestion=suggestion)
        marks.append(
            MarkedSample(
                file=str(sample_file(opened, row)),
                reason=reason,
                label=format_sample_classes(classes, samples.true, row),
                prediction=format_sample_classes(classes, samples.predicted, row),
                new_label=suggestion,
            )
        )
    return tuple(marks)


def make_csv_rows(marks: Sequence[MarkedSample]) -> Iterator[list[str]]:
    """Yield a CSV row with the names of the columns, then a row for each of `marks`."""
    yield [*MarkedSample.__struct_fields__]
    for mark in marks:
        yield [getattr(mark, name) for name in MarkedSample.__struct_fields__]


MAX_SAMPLES = 1000
"""Maximum number of samples on the wall."""

Sort = Literal["loss", "correct", "sure", "order"]

SORTS: dict[Sort, tuple[str, str]] = {
    "loss": (tr("Highest loss"), tr("Samples with the highest loss first")),
    "correct": (tr("Least correct"), tr("Samples with the smallest correct fraction first")),
    "sure": (
        tr("Most confident"),
        tr("Samples with the highest confidence first; with Only wrong, overconfident errors"),
    ),
    "order": (tr("Split order"), tr("In the order of the split")),
}


@dataclass(frozen=True)
class SampleFilter:
    """Filter and order of samples.

    Attributes:
        true: Index of the true class, `NO_CLASS` for samples without a class, or None for all.
        predicted: Index of the predicted class; `NO_CLASS` and None as in `true`.
        wrong: True to show only incorrect samples.
        sort: Order of the samples.
        only: Rows to select from, or None for all.
    """

    true: int | None = None
    predicted: int | None = None
    wrong: bool = False
    sort: Sort = "loss"
    only: frozenset[int] | None = None


def list_sorts(samples: SampleTable) -> list[Sort]:
    """Return the sort orders that the columns of `samples` permit, starting with the default."""
    is_supported = {
        "loss": samples.losses is not None,
        "correct": samples.correct is not None,
        "sure": samples.confidence is not None,
        "order": True,
    }
    return [sort for sort in SORTS if is_supported[sort]]


def rank_samples(samples: SampleTable, criteria: SampleFilter) -> Numbers:
    """Return the rows of the samples that match `criteria`, in the order that these specify."""
    matches = _make_class_mask(samples.true, samples.true_class, criteria.true, len(samples))
    matches &= _make_class_mask(samples.predicted, samples.predicted_class, criteria.predicted, len(samples))
    if criteria.wrong and samples.correct is not None:
        matches &= samples.correct < 1
    if criteria.only is not None:
        matches &= np.isin(np.arange(len(samples)), list(criteria.only))
    rows = np.flatnonzero(matches)
    values = {"loss": samples.losses, "sure": samples.confidence, "correct": samples.correct}.get(criteria.sort)
    if values is None:
        return rows
    # The lowest correct fraction is first, and the highest loss or confidence.
    keys = values[rows] if criteria.sort == "correct" else -values[rows]
    return rows[np.argsort(keys, kind="stable")]  # NaN is sorted last


def _make_class_mask(
    lists: tuple[tuple[int, ...], ...] | None, single: Numbers | None, index: int | None, count: int
) -> npt.NDArray[np.bool_]:
    """Return a mask of the samples that have the class `index`, or of all samples if `index` or `lists` is None.

    Args:
        lists: Classes of each sample, or None if they are unknown.
        single: Class of each sample if no sample has several, otherwise None.
        index: Index of the class, or `NO_CLASS` for samples without a class.
        count: Number of samples.
    """
    if index is None or lists is None:
        return np.ones(count, np.bool_)
    if single is not None:
        return single == index
    if index == NO_CLASS:
        return np.fromiter((not classes for classes in lists), np.bool_, count)
    return np.fromiter((index in classes for classes in lists), np.bool_, count)
