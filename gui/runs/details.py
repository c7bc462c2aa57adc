"""Details of the selected run, and the user's notes on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QSignalBlocker, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QTextOption
from PySide6.QtWidgets import (
    QHeaderView,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QToolButton,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from engine.contract.job import FIELDS, changed_fields
from engine.runs.folder import RunFolder, RunSummary
from engine.runs.holding import FolderSize, measure_folder
from engine.runs.metrics import format_best_metric
from engine.runs.notes import tags_of
from engine.system.format import duration
from gui.actions import Action, bind
from gui.format import counted, format_date_and_time, localized, metric_value, significant, size
from gui.runs.actions import ACTIVE_STATES
from gui.sources.background import in_background
from gui.sources.checkpoints import Checkpoint, checkpoints_of
from gui.titles import (
    SCHEDULES,
    describe_activity,
    describe_devices,
    model_title,
    option_fields,
    run_title,
    strategy_title,
)
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.labels import ElidedLabel, EmptyState, field_label
from gui.widgets.layouts import FlowLayout, vbox

_SAVE_DELAY_MS = 700
"""Milliseconds without typing after which notes are saved."""

_MAX_WORD_LENGTH = 1000
"""Maximum length of a word for text to wrap at word boundaries. With longer words, Qt takes seconds."""

_MAX_CHECKPOINTS = 20
"""Maximum number of listed checkpoints, newest first."""

_BUTTON_WIDTH, _ROW_HEIGHT = 52, 24
_CONTENTS = QHeaderView.ResizeMode.ResizeToContents
_PATH = Qt.ItemDataRole.UserRole
"""Item role of the checkpoint path in a row."""

_HINT = tr("Select a run to see its job, its checkpoints and your notes.")


class Details(QWidget):
    """Job, checkpoints, disk usage and notes of the selected run.

    Signals:
        noted(RunSummary, dict): the user has changed these `RunNotes` fields of the run.
        fork_requested(str, Path): the user wants to fork the run with this id from this checkpoint.
    """

    noted = Signal(object, object)
    fork_requested = Signal(str, object)

    def __init__(self, actions: Sequence[Action]) -> None:
        """Create the view. Each of `actions` gets a button, which is visible while the action is enabled."""
        super().__init__()
        self._actions = actions
        self._fields: DetailFields | None = None
        self._run: RunSummary | None = None
        self._is_dirty = False  # True while notes or tags have unsaved edits
        self._heading = styled(ElidedLabel(), "heading")
        self.state = QLabel(wordWrap=True)
        self.state.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.facts = self._create_facts()
        self.tags = styled(QLineEdit(), name=tr("Tags of the selected run"))
        self.tags.setPlaceholderText(tr("Separate with commas"))
        self.notes = styled(QPlainTextEdit(), name=tr("Notes on the selected run"))
        self.notes.setPlaceholderText(tr("What you tried and what you found…"))
        self.notes.setTabChangesFocus(True)
        self._save_timer = QTimer(self, interval=_SAVE_DELAY_MS, singleShot=True)
        self._save_timer.timeout.connect(self.save)
        self.tags.textEdited.connect(self._on_typed)
        self.tags.editingFinished.connect(self.save)
        self.notes.textChanged.connect(self._on_typed)
        self.hint = EmptyState(_HINT)
        self._halves = QSplitter()
        self._halves.setChildrenCollapsible(False)
        self._stack = QStackedWidget()
        self._lay_out()

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Show the details of the only run in `runs`. They are read on a worker thread.

        If `runs` contains none or several, show a hint. Unsaved notes on another run are saved.
        """
        run = runs[0] if len(runs) == 1 else None
        previous_run = self._run
        is_same_run = run is not None and previous_run is not None and run.run_id == previous_run.run_id
        if not is_same_run:
            self.save()
        self._run = run
        if run is None:
            self.hint.setText(tr("{runs} selected.").format(runs=counted(len(runs), "run")) if runs else _HINT)
            self._stack.setCurrentWidget(self.hint)
            return
        self._stack.setCurrentWidget(self._halves)
        if not is_same_run:
            self.facts.clear()
            self._fields = None
        if previous_run != run:
            self._show_run(run)
            failed = partial(self._on_unread, run.run_id)
            in_background(lambda: read_details(Path(run.folder)), self, self._show_fields, failed)

    def set_orientation(self, orientation: Qt.Orientation) -> None:
        """Place the notes next to the run's facts if `orientation` is horizontal, or below them if it is vertical."""
        self._halves.setOrientation(orientation)

    def save(self) -> None:
        """Emit `noted`, so that unsaved notes and tags are saved. Do nothing if they equal those of the run."""
        self._save_timer.stop()
        if self._is_dirty and self._run is not None:
            self._is_dirty = False
            changes = {"tags": tags_of(self.tags.text()), "text": self.notes.toPlainText().strip()}
            if changes != {"tags": self._run.tags, "text": self._run.notes}:
                self.noted.emit(self._run, changes)

    def hideEvent(self, event: QHideEvent) -> None:
        self.save()
        super().hideEvent(event)

    def _create_facts(self) -> QTreeWidget:
        """Create the tree for checkpoints, settings and disk usage."""
        tree = styled(QTreeWidget(), name=tr("Job and checkpoints of the selected run"))
        tree.setColumnCount(3)
        tree.setHeaderHidden(True)
        tree.setRootIsDecorated(False)
        tree.setIndentation(12)
        tree.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        tree.header().setStretchLastSection(False)
        tree.header().setMinimumSectionSize(0)
        for column, mode in enumerate((_CONTENTS, QHeaderView.ResizeMode.Stretch, _CONTENTS)):
            tree.header().setSectionResizeMode(column, mode)
        tree.itemActivated.connect(lambda item, _column: self._fork(item))
        return tree

    def _lay_out(self) -> None:
        buttons = FlowLayout(spacing=6)
        for action in self._actions:
            buttons.addWidget(bind(QPushButton(), action, hide_disabled=True))
        facts, notes = QWidget(), QWidget()
        facts.setLayout(vbox(self._heading, self.state, buttons, (self.facts, 1), spacing=4))
        tags_label, notes_label = field_label(tr("Ta&gs"), self.tags), field_label(tr("&Notes"), self.notes)
        notes.setLayout(vbox(tags_label, self.tags, notes_label, self.notes, spacing=4))
        self._halves.setHandleWidth(9)
        self._halves.addWidget(facts)
        self._halves.addWidget(notes)
        self._halves.setStretchFactor(0, 2)
        self._halves.setStretchFactor(1, 1)
        self._stack.addWidget(self.hint)
        self._stack.addWidget(self._halves)
        self.setLayout(vbox(self._stack))

    def _show_run(self, run: RunSummary) -> None:
        """Show the title, state, notes and tags of a run, but keep notes and tags that are being edited."""
        self._heading.setText(run_title(run))
        self.state.setText(_describe_state(run))
        if not self._is_dirty:
            if self.notes.toPlainText().strip() != run.notes:
                with QSignalBlocker(self.notes):
                    self.notes.setWordWrapMode(_choose_wrap_mode(run.notes))
                    self.notes.setPlainText(run.notes)
            if tags_of(self.tags.text()) != run.tags:
                self.tags.setText(", ".join(run.tags))

    def _show_fields(self, fields: DetailFields) -> None:
        """Show facts that were read in the background, unless another run is selected or they haven't changed.

        Selection and scroll position are retained.
        """
        if self._run is None or self._run.run_id != fields.run_id or fields == self._fields:
            return
        self._fields = fields
        scroll_position, current = self.facts.verticalScrollBar().value(), self.facts.currentItem()
        selected_text = current.text(0) if current is not None else ""
        self.facts.clear()
        self._show_checkpoints(fields.checkpoints)
        self._add_section(tr("Changed settings"), list_job_lines(fields))
        self._add_section(tr("On disk"), list_disk_lines(fields))
        self.facts.expandAll()
        for item in self.facts.findItems(selected_text, Qt.MatchFlag.MatchExactly | Qt.MatchFlag.MatchRecursive):
            self.facts.setCurrentItem(item)
        self.facts.verticalScrollBar().setValue(scroll_position)

    def _show_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Add the newest checkpoints, each with a button that forks the run from it."""
        if not checkpoints:
            return
        lines = [(checkpoint.name, checkpoint.text) for checkpoint in checkpoints[:_MAX_CHECKPOINTS]]
        remaining = len(checkpoints) - _MAX_CHECKPOINTS
        if remaining > 0:
            lines.append(("", tr("{count} older ones are in the run's folder").format(count=localized(remaining))))
        items = self._add_section(tr("Checkpoints"), lines)
        for item, checkpoint in zip(items, checkpoints[:_MAX_CHECKPOINTS], strict=False):
            item.setData(0, _PATH, checkpoint.path)
            item.setSizeHint(2, QSize(_BUTTON_WIDTH, _ROW_HEIGHT))
            self.facts.setItemWidget(item, 2, self._create_fork_button(item, checkpoint))

    def _create_fork_button(self, item: QTreeWidgetItem, checkpoint: Checkpoint) -> QToolButton:
        """Create a button that forks the run from a checkpoint. Enter in the checkpoint's row does the same."""
        if checkpoint.has_only_weights:
            tip = tr("Start a new run from these weights only")
        else:
            tip = tr("Open a new run in the form that continues from here")
        item.setToolTip(0, tr("{tip} (Enter)").format(tip=tip))
        button = tool_button(
            lambda: self._fork(item), text=tr("Fork"), name=tr("Fork from {name}").format(name=checkpoint.name), tip=tip
        )
        button.setStyleSheet(f"min-height: {_ROW_HEIGHT - 6}px; padding: 0 6px;")
        button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        return button

    def _fork(self, item: QTreeWidgetItem) -> None:
        """Emit `fork_requested` for the checkpoint in a row. Do nothing for rows without a checkpoint."""
        path = item.data(0, _PATH)
        if path is not None and self._run is not None:
            self.fork_requested.emit(self._run.run_id, path)

    def _add_section(self, heading: str, lines: Lines) -> list[QTreeWidgetItem]:
        """Append a heading with `lines` below it and return the items of the lines."""
        heading_item = QTreeWidgetItem(self.facts, [heading])
        heading_item.setFirstColumnSpanned(True)
        font = heading_item.font(0)
        font.setBold(True)
        heading_item.setFont(0, font)
        items = [QTreeWidgetItem(heading_item, [name, value]) for name, value in lines]
        for item, (_name, value) in zip(items, lines, strict=True):
            item.setToolTip(1, value)
        return items

    def _on_unread(self, run_id: str, error: Exception) -> None:
        """Show why the details of a run can't be read, unless another run is selected."""
        if not isinstance(error, OSError):
            raise error
        if self._run is None or self._run.run_id != run_id:
            return
        self._fields = None
        self.facts.clear()
        self._add_section(
            tr("On disk"), [(tr("The run's folder"), tr("can't be read: {reason}").format(reason=error.strerror))]
        )
        self.facts.expandAll()

    def _on_typed(self) -> None:
        self._is_dirty = True
        self._save_timer.start()


def _choose_wrap_mode(text: str) -> QTextOption.WrapMode:
    """Return the mode that wraps the notes `text` at words or, if a word is very long, anywhere."""
    longest = max(map(len, text.split()), default=0)
    modes = QTextOption.WrapMode
    return modes.WrapAnywhere if longest > _MAX_WORD_LENGTH else modes.WrapAtWordBoundaryOrAnywhere


def _describe_state(run: RunSummary) -> str:
    """Describe a run's state, best result, start, and the cause of the state.

    For example "Failed after 3:12 min · best Top-1 80.0% · started 2026-11-21", and the cause in a second line.
    """
    state = run.state.capitalize()
    lasted = duration(run.seconds)
    if run.slurm and run.state in ACTIVE_STATES:
        state_text = tr("{state} in SLURM, {job}").format(state=state, job=run.slurm)
    elif run.state == "waiting":
        state_text = tr("Waiting until its devices are free")
    elif run.state in ACTIVE_STATES:
        state_text = f"{state}: {describe_activity(run)}"
    elif run.state == "interrupted":
        state_text = (
            tr("Interrupted while {activity}")
            if run.seconds is None
            else tr("Interrupted after {time} while {activity}")
        ).format(time=lasted, activity=describe_activity(run))
    else:
        state_text = state if run.seconds is None else tr("{state} after {time}").format(state=state, time=lasted)
    texts = [
        state_text,
        *([tr("best {metric}").format(metric=format_best_metric(run, metric_value))] if run.best else []),
        tr("started {time}").format(time=format_date_and_time(run.started)),
    ]
    return " · ".join(texts) + (f"\n{run.cause}" if run.cause else "")


@dataclass(frozen=True)
class DetailFields:
    """Facts for the details of a run, which are read from its folder.

    Attributes:
        changed: Job fields with values other than the default, or None if the job can't be read.
        options: Options of task, model and strategy that are set, by label.
    """

    run_id: str
    changed: dict[str, Any] | None
    options: dict[str, Any]
    checkpoints: tuple[Checkpoint, ...]
    folder_size: FolderSize


def read_details(folder: Path) -> DetailFields:
    """Read a run's changed job fields, options, checkpoints and disk usage from its folder. Raises OSError."""
    run = RunFolder(folder)
    job = run.job()
    options = {}
    if job is not None and job.options:
        fields = option_fields(job)
        options = {fields[name].label if name in fields else name: value for name, value in job.options.items()}
    return DetailFields(
        run_id=run.run_id,
        changed=changed_fields(job) if job is not None else None,
        options=options,
        checkpoints=checkpoints_of(run),
        folder_size=measure_folder(folder),
    )


Lines = list[tuple[str, str]]


def list_job_lines(details: DetailFields) -> Lines:
    """Return the labels and values of job fields that differ from their defaults, and of options that are set."""
    if details.changed is None:
        return [("job.toml", tr("can't be read"))]
    fields = [(FIELDS[name].label, _format_value(name, value)) for name, value in details.changed.items()]
    return [*fields, *((label, _format_value("", value)) for label, value in details.options.items())]


def list_disk_lines(details: DetailFields) -> Lines:
    """Return the size of the run's folder as a labeled text, preceded by a line if the run has no checkpoints."""
    missing = [] if details.checkpoints else [(tr("Checkpoints"), tr("none yet"))]
    return [*missing, (tr("Folder"), size(details.folder_size.bytes))]


_TITLES: dict[str, Callable[[Any], str]] = {
    "model": model_title,
    "strategy": strategy_title,
    "devices": describe_devices,
    "pipeline_schedule": SCHEDULES.__getitem__,
}


def _format_value(name: str, value: Any) -> str:
    """Format the value of a job's field. An empty `name` stands for an option."""
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    if isinstance(value, float):
        return significant(value)
    if name in _TITLES:
        return _TITLES[name](value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
