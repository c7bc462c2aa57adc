"""Where a model is wrong: the samples of an evaluation, the worst first, one of them large, and those that are
marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QStackedWidget, QVBoxLayout, QWidget

from gui.format import counted, localised
from gui.run.model.plot import caption
from gui.run.model.samples.captions import short_caption
from gui.run.model.samples.detail import SampleDetail
from gui.run.model.samples.marked_button import MarkedButton
from gui.run.model.samples.marks import read_marks, sample_file, write_marks
from gui.run.model.samples.ranking import MOST, SORTS, Choice, Sort, ranked, sorts_of
from gui.run.model.samples.review import ReviewBar
from gui.run.model.samples.wall import SampleWall
from gui.sources.background import describe_error, in_background, reraise
from gui.sources.evaluations import NO_CLASS, OpenedEvaluation
from gui.widgets.editors import ChoiceEditor
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.tab_order import order_tabs

ALL, NO = "all", str(NO_CLASS)
WALL, DETAIL = range(2)


class SamplesPage(QWidget):
    """Shows the samples of an evaluation.

    Signals: message(str, str) - in plain words, what came of saving; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._count = 0
        self.sort, self.true, self.predicted = ChoiceEditor([]), ChoiceEditor([]), ChoiceEditor([])

        self.wrong = QCheckBox("Wrong alone")
        self.wrong.setToolTip("Leaves out the samples that are right")
        self.only_marked = QCheckBox("Marked alone")
        self.told = caption()
        self.wall = SampleWall()
        self.detail = SampleDetail()
        self.menu = MarkedButton()
        self.review = ReviewBar()
        self.stack = QStackedWidget()
        self._lay_out()
        for editor in (self.sort, self.true, self.predicted):
            editor.edited.connect(self._rank)
        for box in (self.wrong, self.only_marked):
            box.toggled.connect(lambda _on: self._rank())
        self.wall.opened.connect(self.open)
        self.wall.mark_wanted.connect(self._mark)
        self.detail.closed.connect(self._back)
        self.detail.moved.connect(self._move)
        self.detail.mark_wanted.connect(lambda: self._mark(self.wall.current()))
        self.menu.message.connect(self.message)
        self.review.changed.connect(self._show_suspects)

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Shows the samples of `opened`; `devices` are where its model is to be run for heat maps."""
        self._opened = opened
        self.wall.thumbnails.clear()
        self.wall.shown.show_rows((), partial(sample_file, opened), partial(short_caption, opened))
        self.detail.show_evaluation(opened, devices)
        self.stack.setCurrentIndex(WALL)
        self.wall.shown.marked = set()
        in_background(partial(read_marks, opened.kept), self, partial(self._take_marks, opened), reraise)
        self._offer(opened)
        self.review.show_evaluation(opened)  # which has all of them shown

    def show_cell(self, true: int | None, predicted: int | None) -> None:
        """Shows the samples of one cell of the confusion matrix: of a true class, taken for a class."""
        self.only_marked.setChecked(False)
        self.wrong.setChecked(False)
        classes = len(self._opened.evaluation.classes) if self._opened is not None else 0
        for editor, index in ((self.true, true), (self.predicted, predicted)):
            editor.set_value(ALL if index is None else str(index) if index < classes else NO)
        self._back()
        self.wall.choose(0)

    def show_rows(self, rows: frozenset[int], told: str) -> None:
        """Shows those samples alone until another choice is made; `told` says what they are."""
        self._rank(rows)
        self.told.setText(told)
        self._back()

    def open(self, position: int) -> None:
        """Shows the sample at that position of the wall large."""
        shown = self.wall.shown
        if not 0 <= position < len(shown.rows):
            return
        self.wall.choose(position)
        self.detail.show_sample(shown.rows, position, shown.file(position))
        self.detail.show_marked(shown.rows[position] in shown.marked)
        if self.stack.currentIndex() != DETAIL:
            self.stack.setCurrentIndex(DETAIL)
            self.detail.image.pane.setFocus()

    def close_work(self) -> None:
        """Ends what goes on in the background, for the end of the window."""
        self.wall.thumbnails.close()
        self.detail.close_work()
        self.review.close_work()

    def _back(self) -> None:
        self.stack.setCurrentIndex(WALL)
        self.wall.setFocus()

    def _move(self, by: int) -> None:
        position = self.wall.current() + by
        if 0 <= position < len(self.wall.shown.rows):
            self.open(position)

    # Choosing

    def _offer(self, opened: OpenedEvaluation) -> None:
        names = opened.evaluation.classes
        classes = [(str(at), name, "") for at, name in enumerate(names)]
        several = opened.samples.true_class is None
        none = [(NO, "none of them", "")]
        self._choices(self.sort, [(sort, *SORTS[sort]) for sort in sorts_of(opened.samples)])
        self._choices(self.true, [(ALL, "any", ""), *classes, *(none if several else [])])
        self._choices(self.predicted, [(ALL, "any", ""), *classes, *none])
        for editor, column in ((self.true, opened.samples.true), (self.predicted, opened.samples.predicted)):
            self._groups[editor].setVisible(column is not None and len(names) > 1)
        self.wrong.setVisible(opened.samples.correct is not None)

    def _choices(self, editor: ChoiceEditor, choices: list[tuple[str, str, str]]) -> None:
        editor.blockSignals(True)
        editor.box.clear()
        editor.set_choices(choices)
        editor.box.setCurrentIndex(0)
        editor.blockSignals(False)

    def choice(self) -> Choice:
        """What is asked for."""
        true, predicted = (None if e.value() == ALL else int(e.value()) for e in (self.true, self.predicted))
        sort: Sort = next((each for each in SORTS if each == self.sort.value()), "loss")
        marked = frozenset(self.wall.shown.marked) if self.only_marked.isChecked() else None
        return Choice(true, predicted, self.wrong.isChecked(), sort, marked)

    def _show_suspects(self) -> None:
        suspects, opened = self.review.suspects(), self._opened
        if suspects is None or opened is None:
            self._rank()
        else:
            with QSignalBlocker(self.only_marked):
                self.only_marked.setChecked(False)
            self._show(opened, suspects.rows[:MOST], suspects.captions.__getitem__, suspects.told)
        self._marks_changed()

    def _rank(self, only: frozenset[int] | None = None) -> None:
        self.review.choose_all()
        opened = self._opened
        if opened is None or self.true.box.count() == 0:
            return
        choice = self.choice() if only is None else Choice(sort=self.choice().sort, only=only)
        found = ranked(opened.samples, choice)
        rows = found[:MOST].tolist()
        told = _told(len(found), len(rows), len(opened.samples))
        self._show(opened, rows, partial(short_caption, opened), told)

    def _show(
        self, opened: OpenedEvaluation, rows: Sequence[int], caption: Callable[[int], tuple[str, str]], told: str
    ) -> None:
        before = self.wall.shown.rows[self.wall.current()] if self.wall.current() >= 0 else None
        self.wall.shown.show_rows(rows, partial(sample_file, opened), caption)
        self.told.setText(told)
        if rows:
            self.wall.choose(rows.index(before) if before in rows else 0)

    # Marking

    def _take_marks(self, opened: OpenedEvaluation, marked: set[int]) -> None:
        if self._opened is opened:
            self.wall.shown.marked = {row for row in marked if 0 <= row < len(opened.samples)}
            self._marks_changed()

    def _mark(self, position: int) -> None:
        opened, shown = self._opened, self.wall.shown
        if opened is None or not 0 <= position < len(shown.rows):
            return
        shown.marked ^= {shown.rows[position]}
        self.detail.show_marked(shown.rows[position] in shown.marked)
        self._marks_changed()
        in_background(
            partial(write_marks, opened.kept, tuple(shown.marked)),
            self,
            lambda _done: None,
            lambda error: self.message.emit(f"The marks can't be kept: {describe_error(error)}.", "warning"),
        )

    def _marks_changed(self) -> None:
        count = len(self.wall.shown.marked)
        self.wall.shown.marks_changed()
        if self._opened is not None:
            self.menu.show_marked(self._opened, self.wall.shown.marked, self.review.suggestions())
        self.only_marked.setEnabled(count > 0 or self.only_marked.isChecked())
        if self.only_marked.isChecked() and self.stack.currentIndex() == WALL:
            self._rank()

    # Making it

    def _lay_out(self) -> None:
        self._groups: dict[ChoiceEditor, QWidget] = {}
        top = QWidget()
        flow = FlowLayout(top, spacing=10, line_spacing=6)
        for title, name, editor in (
            ("Order", "Order of the samples", self.sort),
            ("Actual", "Actual class", self.true),
            ("Predicted", "Predicted class", self.predicted),
        ):
            self._groups[editor] = group = _labelled(title, name, editor)
            flow.addWidget(group)
        for widget in (self.wrong, self.only_marked, self.menu):
            flow.addWidget(widget)
        wall = QWidget()
        column = QVBoxLayout(wall)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(top)
        column.addWidget(self.review)
        column.addWidget(self.told)
        column.addWidget(self.wall, 1)
        self.stack.addWidget(wall)
        self.stack.addWidget(self.detail)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.stack)
        order_tabs(
            self, (*self._groups.values(), self.wrong, self.only_marked, self.menu, self.review, self.wall, self.detail)
        )


def _labelled(title: str, name: str, editor: ChoiceEditor) -> QWidget:

    group = QWidget()
    label = QLabel(title)
    label.setObjectName("muted")
    label.setBuddy(editor.control)
    editor.control.setAccessibleName(name)
    row = QHBoxLayout(group)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(6)
    row.addWidget(label)
    row.addWidget(editor)
    return group


def _told(found: int, shown: int, of: int) -> str:
    if not found:
        return "No samples match."
    if shown < found:
        return f"The first {localised(shown)} of {localised(found)} samples that match, of {localised(of)}"
    return f"{counted(found, 'sample')} of {localised(of)}"
