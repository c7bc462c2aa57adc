"""Looking through the samples of an evaluation for labels that are probably wrong, and for images that occur twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.inference.review import Review, ReviewedSample, ReviewOrder, decode_review
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from gui.actions import Action, bind
from gui.format import counted, localised
from gui.run.model.plot import caption
from gui.run.model.samples.work_line import WorkLine
from gui.sources.background import ignore_os_error, in_background
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inference_child import InferenceChild
from gui.widgets.editors import ChoiceEditor

ALL, LABELS, TWICE = "all", "labels", "twice"


class Suspects(NamedTuple):
    """Samples that something is said of: their rows, in order, two lines on each row, and what they are in words."""

    rows: tuple[int, ...]
    captions: dict[int, tuple[str, str]]
    told: str


class _Read(NamedTuple):
    """A review, and the rows of its evaluation by split and path."""

    review: Review
    rows: dict[tuple[str, str], int]


class ReviewBar(QWidget):
    """Has the samples looked through, and lets one choose which of them are shown.

    Signals: changed() - other samples are to be shown, see `suspects`.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rows: dict[tuple[str, str], int] = {}
        self.review: Review | None = None
        self.child = InferenceChild("The review", self)
        self.act = Action(
            self,
            "review",
            "Find wrong labels …",
            "Looks for labels that are probably wrong, and images that occur twice",
        )
        self.shown = ChoiceEditor([(ALL, "all samples", "")])
        self.shown.control.setAccessibleName("Which samples are shown")
        self.work = WorkLine("Looking through the samples")
        self.origin = caption()
        self._label = QLabel("Show")
        self._label.setObjectName("muted")
        self._label.setBuddy(self.shown.control)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self._label)
        row.addWidget(self.shown)
        row.addWidget(bind(QPushButton(), self.act))
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self.origin)
        layout.addWidget(self.work)
        self.act.on_trigger(self._order)
        self.shown.edited.connect(self._choose)
        self.child.progress.connect(self.work.tell)
        self.child.done.connect(self._done)
        self.child.refused.connect(lambda problems: self.work.rest(*problems))
        self.child.failed.connect(lambda text: self.work.rest(Problem("", text)))

    def show_evaluation(self, opened: OpenedEvaluation) -> None:
        """The newest review of the evaluation is read, if there is one."""
        self.child.cancel()
        self.work.rest()
        self._opened, self.review = opened, None
        self._offer()
        in_background(partial(_newest, opened), self, partial(self._take, opened), ignore_os_error)

    def choose_all(self) -> None:
        """Shows all samples again, without telling of it."""
        self.shown.blockSignals(True)
        self.shown.set_value(ALL)
        self.shown.blockSignals(False)

    def suspects(self) -> Suspects | None:
        """The samples that are to be shown; None for all."""
        of = {LABELS: self._wrong_labels, TWICE: self._twice}.get(self.shown.value())
        return of(self.review) if of is not None and self.review is not None else None

    def suggestions(self) -> dict[int, str]:
        """The label that is suggested for each row with a wrong one."""
        issues = self.review.label_issues if self.review is not None else ()
        found = ((self._row(issue.sample), issue) for issue in issues)
        return {row: issue.suggested for row, issue in found if row is not None and issue.given and issue.suggested}

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self.child.close()

    def _order(self) -> None:
        opened = self._opened
        if opened is not None:
            folder = opened.kept.folder.absolute()
            self.child.start(ReviewOrder(run=str(folder.parents[1]), evaluations=(str(folder),), worst=0))

    def _done(self, path: str) -> None:
        opened = self._opened
        self.work.rest()
        if opened is not None:
            in_background(partial(_read, opened, Path(path)), self, partial(self._fresh, opened), ignore_os_error)

    def _fresh(self, opened: OpenedEvaluation, read: _Read | None) -> None:
        """What was found just now is shown at once."""
        self._take(opened, read)
        if read is not None and read.review.label_issues:
            self.shown.set_value(LABELS)

    def _take(self, opened: OpenedEvaluation, read: _Read | None) -> None:
        if opened is self._opened and read is not None:
            self.review, self._rows = read
            self._offer()

    def _offer(self) -> None:
        review = self.review
        choices = [(ALL, "all samples", "")]
        if review is not None:
            choices.append((LABELS, f"probably wrong labels ({localised(len(review.label_issues))})", ""))
            choices.append((TWICE, f"images that occur twice ({localised(len(review.duplicates))})", ""))
            told = " ".join((review.origin, *review.missing))
            self.origin.setText(told)
        self.origin.setVisible(review is not None)
        for widget in (self._label, self.shown):
            widget.setVisible(review is not None)
        self.shown.blockSignals(True)
        self.shown.box.clear()
        self.shown.set_choices(choices)
        self.shown.box.setCurrentIndex(0)
        self.shown.blockSignals(False)
        self.changed.emit()

    def _choose(self) -> None:
        self.changed.emit()

    def _row(self, sample: ReviewedSample) -> int | None:
        return self._rows.get((sample.split, sample.path))

    def _wrong_labels(self, review: Review) -> Suspects:
        told: dict[int, tuple[str, str]] = {}
        for issue in review.label_issues:
            row = self._row(issue.sample)
            if row is not None:
                first = (
                    f"{issue.given or 'no'} {issue.suggested}"
                    if not issue.given
                    else f"{issue.given} → {issue.suggested or 'none'}"
                )
                probable = f"{100 * issue.probability:.0f} % → {100 * issue.suggested_probability:.0f} %"
                told[row] = first, probable
        expected = f"about {localised(review.expected_errors)} wrong labels are to be expected in all"
        wrong = "1 label is" if len(told) == 1 else f"{localised(len(told))} labels are"
        return Suspects(tuple(told), told, f"{wrong} probably wrong; {expected}")

    def _twice(self, review: Review) -> Suspects:
        """Each pair one beside the other; of one whose other image is not in this evaluation, the one that is."""
        told: dict[int, tuple[str, str]] = {}
        for pair in review.duplicates:
            for mine, other in ((pair.first, pair.second), (pair.second, pair.first)):
                row = self._row(mine)
                if row is not None:
                    like = "the same as" if pair.exact else "nearly"
                    label = "other label" if pair.labels_differ else other.split
                    told[row] = f"{like} {Path(other.path).name}", label
        return Suspects(tuple(told), told, f"{counted(len(review.duplicates), 'pair')} of images that are alike")


def _read(opened: OpenedEvaluation, path: Path) -> _Read | None:
    """The review in the file `path`; None of one that can't be understood."""
    try:
        review = decode_review(path.read_bytes())
    except NOT_DECODED:
        return None
    samples = opened.samples
    rows = {key: row for row, key in enumerate(zip(samples.splits, samples.paths, strict=True))}
    return _Read(review, rows)


def _newest(opened: OpenedEvaluation) -> _Read | None:
    """The newest review of the evaluation alone; None without one."""
    folder = opened.kept.folder.absolute()
    found = [_read(opened, file) for file in (folder.parents[1] / "reviews").glob("*.json")]
    mine = [read for read in found if read is not None and read.review.evaluations == (str(folder),)]
    return max(mine, key=lambda read: read.review.date, default=None)
