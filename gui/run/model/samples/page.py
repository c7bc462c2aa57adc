"""Page with the samples of an evaluation: a wall of thumbnails, or a single sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QPushButton, QStackedWidget, QWidget

from gui.format import counted, localized
from gui.run.model.samples.detail import SampleDetail
from gui.run.model.samples.drawings import make_short_caption
from gui.run.model.samples.review import (
    MAX_SAMPLES,
    SORTS,
    ReviewBar,
    SampleFilter,
    Sort,
    list_sorts,
    make_csv_rows,
    make_marks,
    rank_samples,
    read_marks,
    sample_file,
    write_marks,
)
from gui.run.model.samples.wall import SampleWall
from gui.sources.background import SingleFlight, describe_error, in_background, reraise
from gui.sources.evaluations import NO_CLASS, OpenedEvaluation, SavedEvaluation
from gui.sources.export import save_in_background, write_csv
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import ChoiceEditor
from gui.widgets.file_dialogs import add_timestamp, choose_target
from gui.widgets.labels import caption, labeled
from gui.widgets.layouts import FlowLayout, vbox
from gui.widgets.tab_order import order_tabs

ALL_CLASSES, NONE_OF_THEM = "all", str(NO_CLASS)
WALL, DETAIL = range(2)


class SamplesPage(QWidget):
    """Page with the samples of an evaluation, which users can filter, sort and mark.

    Signals:
        message(str, str): the result of saving a file, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self.sort, self.true, self.predicted = ChoiceEditor([]), ChoiceEditor([]), ChoiceEditor([])
        self.wrong = styled(QCheckBox(tr("Only wrong")), tip=tr("Hide the correct samples"))
        self.only_marked = QCheckBox(tr("Only marked"))
        self.summary = caption()
        self.wall = SampleWall()
        self.detail = SampleDetail()
        self.save_marked = MarkedButton()
        self.review = ReviewBar()
        self._has_read_marks = False  # True once the marks of the open evaluation have been read
        # By folder: evaluations whose marks aren't saved, and the marked rows.
        self._unsaved_marks: dict[Path, tuple[SavedEvaluation, tuple[int, ...]]] = {}
        self._marks_writer = SingleFlight(
            self, self._next_marks_to_write, lambda _none: self._marks_writer.request(), self._on_write_failed
        )
        self.stack = QStackedWidget()
        self._lay_out()
        for editor in (self.sort, self.true, self.predicted):
            editor.edited.connect(self._apply_filter)
        for box in (self.wrong, self.only_marked):
            box.toggled.connect(lambda _on: self._apply_filter())
        self.wall.opened.connect(self.open)
        self.wall.mark_requested.connect(self._toggle_mark)
        self.detail.closed.connect(self._show_wall)
        self.detail.moved.connect(self._move_by)
        self.detail.mark_requested.connect(lambda: self._toggle_mark(self.wall.current()))
        self.save_marked.message.connect(self.message)
        self.review.changed.connect(self._show_suspects)

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Show the samples of `opened`. Its model runs on `devices` for drawings and heat maps."""
        self._opened = opened
        self.wall.thumbnails.clear()
        self.wall.samples.show_rows((), partial(sample_file, opened), partial(make_short_caption, opened))
        self.detail.show_evaluation(opened, devices)
        self.stack.setCurrentIndex(WALL)
        self.wall.samples.marked = set()
        self._has_read_marks = False
        in_background(partial(read_marks, opened.saved), self, partial(self._show_marks, opened), reraise)
        self._fill_filters(opened)
        self.review.show_evaluation(opened)  # emits `changed`, and `_show_suspects` then lists all samples

    def show_cell(self, true: int, predicted: int) -> None:
        """Show the samples in a cell of the confusion matrix.

        `true` and `predicted` are class indices. An index after the last class selects samples without a class.
        """
        self.only_marked.setChecked(False)
        self.wrong.setChecked(False)
        class_count = len(self._opened.evaluation.classes) if self._opened is not None else 0
        for editor, index in ((self.true, true), (self.predicted, predicted)):
            editor.set_value(str(index) if index < class_count else NONE_OF_THEM)
        self._show_wall()
        self.wall.choose(0)

    def show_rows(self, rows: frozenset[int], description: str) -> None:
        """Show only the samples at `rows` until the user changes the filter. `description` describes them."""
        self._apply_filter(rows)
        self.summary.setText(description)
        self._show_wall()

    def open(self, position: int) -> None:
        """Show the sample at `position` among the thumbnails in detail. Do nothing if there is none."""
        samples = self.wall.samples
        if not 0 <= position < len(samples.rows):
            return
        self.wall.choose(position)
        self.detail.show_sample(samples.rows, position, samples.file(position))
        self.detail.show_marked(samples.rows[position] in samples.marked)
        if self.stack.currentIndex() != DETAIL:
            self.stack.setCurrentIndex(DETAIL)
            self.detail.image.pane.setFocus()

    def close_work(self) -> None:
        """Save the marks of all evaluations, and stop background work, when the window closes."""
        while self._marks_writer.running:
            self._marks_writer.finish()
        self.wall.thumbnails.close()
        self.detail.close_work()
        self.review.close_work()

    def _show_wall(self) -> None:
        """Return from a single sample to the wall of thumbnails."""
        self.stack.setCurrentIndex(WALL)
        self.wall.setFocus()

    def _move_by(self, by: int) -> None:
        """Show the sample at a distance of `by` from the current one in detail. Do nothing beyond the ends."""
        position = self.wall.current() + by
        if 0 <= position < len(self.wall.samples.rows):
            self.open(position)

    # Choosing

    def _fill_filters(self, opened: OpenedEvaluation) -> None:
        """Offer the sort orders, and the true and predicted classes to filter by, that the evaluation supports."""
        names = opened.evaluation.classes
        classes = [(str(index), name, "") for index, name in enumerate(names)]
        is_multilabel = opened.samples.true_class is None
        none = [(NONE_OF_THEM, tr("none of them"), "")]
        # Choices are (value, title, help).
        self.sort.reset_choices([(sort, *SORTS[sort]) for sort in list_sorts(opened.samples)])
        self.true.reset_choices([(ALL_CLASSES, "any", ""), *classes, *(none if is_multilabel else [])])
        self.predicted.reset_choices([(ALL_CLASSES, "any", ""), *classes, *none])
        for editor, column in ((self.true, opened.samples.true), (self.predicted, opened.samples.predicted)):
            self._labeled_editors[editor].setVisible(column is not None and len(names) > 1)
        self.wrong.setVisible(opened.samples.correct is not None)

    def build_filter(self) -> SampleFilter:
        """Return the current filter and order."""
        true, predicted = (
            None if editor.value() == ALL_CLASSES else int(editor.value()) for editor in (self.true, self.predicted)
        )
        sort: Sort = next((each for each in SORTS if each == self.sort.value()), "loss")
        marked = frozenset(self.wall.samples.marked) if self.only_marked.isChecked() else None
        return SampleFilter(true=true, predicted=predicted, wrong=self.wrong.isChecked(), sort=sort, only=marked)

    def _show_suspects(self) -> None:
        """List the suspicious samples that are selected in the review bar. If none are, apply the filter instead."""
        suspects, opened = self.review.suspects(), self._opened
        if suspects is None or opened is None:
            self._apply_filter()
        else:
            with QSignalBlocker(self.only_marked):
                self.only_marked.setChecked(False)
            self._list_samples(opened, suspects.rows[:MAX_SAMPLES], suspects.captions.__getitem__, suspects.summary)
        self._update_marks()

    def _apply_filter(self, only: frozenset[int] | None = None) -> None:
        """List the samples that match the filter or, if `only` is given, those at these rows.

        The samples are in the selected order. This ends the selection of suspicious samples in the review bar.
        """
        self.review.choose_all()
        opened = self._opened
        if opened is None or self.true.box.count() == 0:  # the filters haven't been filled
            return
        criteria = self.build_filter() if only is None else SampleFilter(sort=self.build_filter().sort, only=only)
        matching = rank_samples(opened.samples, criteria)
        rows = matching[:MAX_SAMPLES].tolist()
        self._list_samples(
            opened,
            rows,
            partial(make_short_caption, opened),
            _describe_filter_result(len(matching), len(rows), len(opened.samples)),
        )

    def _list_samples(
        self, opened: OpenedEvaluation, rows: Sequence[int], caption: Callable[[int], tuple[str, str]], summary: str
    ) -> None:
        """List the samples at `rows` as thumbnails, and show `summary` above them.

        `caption` returns the two caption lines of a row. The current sample remains selected if it is among `rows`,
        otherwise the first one is selected.
        """
        position = self.wall.current()
        previous_row = self.wall.samples.rows[position] if position >= 0 else None
        self.wall.samples.show_rows(rows, partial(sample_file, opened), caption)
        self.summary.setText(summary)
        if rows:
            self.wall.choose(rows.index(previous_row) if previous_row in rows else 0)

    # Marking

    def _show_marks(self, opened: OpenedEvaluation, marked: set[int]) -> None:
        """Mark the rows in `marked`, which were read for `opened`, unless another evaluation has been opened since."""
        if self._opened is opened:
            samples, position = self.wall.samples, self.wall.current()
            samples.marked = {row for row in marked if 0 <= row < len(opened.samples)}
            self._has_read_marks = True
            self.detail.show_marked(position >= 0 and samples.rows[position] in samples.marked)
            self._update_marks()

    def _toggle_mark(self, position: int) -> None:
        """Mark or unmark the sample at a position in the grid, and save the marks in the background.

        Nothing changes until the saved marks have been read.
        """
        opened, samples = self._opened, self.wall.samples
        if opened is None or not 0 <= position < len(samples.rows):
            return
        if self._has_read_marks:  # otherwise, the saved marks would be overwritten
            samples.marked ^= {samples.rows[position]}
        self.detail.show_marked(samples.rows[position] in samples.marked)
        if not self._has_read_marks:
            return
        self._update_marks()
        self._unsaved_marks[opened.saved.folder] = opened.saved, tuple(samples.marked)
        if not self._marks_writer.running:  # otherwise, it continues with these marks
            self._marks_writer.request()

    def _next_marks_to_write(self) -> Callable[[], None] | None:
        """Take the unsaved marks of an evaluation, and return a function that saves them, or None if there are none."""
        if not self._unsaved_marks:
            return None
        saved, rows = self._unsaved_marks.pop(next(iter(self._unsaved_marks)))
        return partial(write_marks, saved, rows)

    def _on_write_failed(self, error: Exception) -> None:
        """Report that marks couldn't be saved, and save the marks of the other evaluations."""
        self._marks_writer.request()
        self.message.emit(tr("Couldn't save the marks: {error}.").format(error=describe_error(error)), "warning")

    def _update_marks(self) -> None:
        """Update the thumbnails, the save button and the filter for marked samples after a change of marks."""
        count = len(self.wall.samples.marked)
        self.wall.samples.emit_marks_changed()
        if self._opened is not None:
            self.save_marked.show_marked(
                self._opened,
                self.wall.samples.marked,
                self.review.suggestions(),
                is_model_weak=self.review.is_model_weak,
            )
        self.only_marked.setEnabled(count > 0 or self.only_marked.isChecked())  # so that it can be unchecked
        if self.only_marked.isChecked() and self.stack.currentIndex() == WALL:
            self._apply_filter()

    def _lay_out(self) -> None:
        self._labeled_editors: dict[ChoiceEditor, QWidget] = {}
        top = QWidget()
        flow = FlowLayout(top, spacing=10, line_spacing=6)
        for title, name, editor in (
            (tr("Order"), tr("Order of the samples"), self.sort),
            (tr("Actual"), tr("Actual class"), self.true),
            (tr("Predicted"), tr("Predicted class"), self.predicted),
        ):
            editor.control.setAccessibleName(name)
            self._labeled_editors[editor] = group = labeled(title, editor)
            flow.addWidget(group)
        for widget in (self.wrong, self.only_marked, self.save_marked):
            flow.addWidget(widget)
        wall = QWidget()
        wall.setLayout(vbox(top, self.review, self.summary, (self.wall, 1)))
        self.stack.addWidget(wall)
        self.stack.addWidget(self.detail)
        self.setLayout(vbox(self.stack))
        order_tabs(
            self,
            (
                *self._labeled_editors.values(),
                self.wrong,
                self.only_marked,
                self.save_marked,
                self.review,
                self.wall,
                self.detail,
            ),
        )


def _describe_filter_result(found: int, listed: int, total: int) -> str:
    """Describe that `found` of `total` samples match the filter, and that only `listed` are shown if that is less."""
    if not found:
        return tr("No samples match.")
    if listed < found:
        return tr("The first {listed} of {found} matching samples, of {total}").format(
            listed=localized(listed), found=localized(found), total=localized(total)
        )
    return tr("{samples} of {total}").format(samples=counted(found, "sample"), total=localized(total))


class MarkedButton(QPushButton):
    """Button that exports the marked samples to a CSV file.

    Signals:
        message(str, str): the result of the export, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rows: tuple[int, ...] = ()
        self._suggestions: Mapping[int, str] = {}
        self._is_model_weak = False
        self.setAccessibleName(tr("Save marked samples"))
        self.clicked.connect(self._choose_file)

    def show_marked(
        self, opened: OpenedEvaluation, rows: set[int], suggestions: Mapping[int, str], *, is_model_weak: bool
    ) -> None:
        """Show the number of marked samples.

        Args:
            opened: Evaluation of the samples.
            rows: Rows of the marked samples.
            suggestions: Suggested labels of some rows.
            is_model_weak: True if the model is too weak for reliable suggestions.
        """
        self._opened, self._rows, self._suggestions = opened, tuple(sorted(rows)), suggestions
        self._is_model_weak = is_model_weak
        self.setText(tr("Save {count} marked…").format(count=localized(len(rows))) if rows else tr("Save marked…"))
        self.setEnabled(bool(rows))
        self.setToolTip(tr("Save the marked samples as CSV") if rows else tr("Mark samples with Space first"))

    def save_list(self, path: Path) -> None:
        """Write the marked samples to the CSV file `path`."""
        if self._opened is not None:
            marks = make_marks(self._opened, self._rows, self._suggestions, is_model_weak=self._is_model_weak)
            saved = tr("{samples} saved to {path}.").format(samples=counted(len(marks), "marked sample"), path="{path}")
            save_in_background(partial(write_csv, path, make_csv_rows(marks)), self.message, saved, self)

    def _choose_file(self) -> None:
        """Open a dialog for the CSV file of the marked samples, and write it."""
        choose_target(self, tr("Save the marked samples"), add_timestamp("marked.csv"), self.save_list)
