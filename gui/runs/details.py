"""The details of the selected run, and the user's notes on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal
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
    QVBoxLayout,
    QWidget,
)

from engine.runs.folder import RunSummary
from engine.runs.metrics import best_words
from engine.runs.notes import tags_of
from engine.system.format import duration
from gui.actions import Action, bind
from gui.format import counted, localised, moment
from gui.runs.deleting import GOING_ON
from gui.runs.detail_fields import DetailFields, Lines, disk_lines, job_lines, read_facts
from gui.sources.background import in_background
from gui.sources.checkpoints import Checkpoint
from gui.titles import doing, run_title
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.empty_state import EmptyState
from gui.widgets.flow_layout import FlowLayout

_PAUSE_MS = 700
"""Notes are saved after this pause in typing."""

_LONGEST_WORD = 1000
"""Qt looks through a longer word again and again for where to wrap it, and so holds the window up."""

_MOST = 20
"""The most checkpoints listed, newest first."""

_BUTTON, _ROW = 52, 24
"""The width of a button and the height of its row, in pixels."""

_CONTENTS = QHeaderView.ResizeMode.ResizeToContents
_PATH = Qt.ItemDataRole.UserRole
"""Where a row keeps the path of its checkpoint."""

_NONE = "Select a run to see its job, its checkpoints and your notes."


class Details(QWidget):
    """Signals:
    noted(RunSummary, dict): its user has changed the notes of that run; the fields are those of `RunNotes`.
    fork_wanted(str, Path): the run of that id is to be forked from that checkpoint.
    """

    noted = Signal(object, object)
    fork_wanted = Signal(str, object)

    def __init__(self, actions: Sequence[Action], parent: QWidget | None = None) -> None:
        """`actions` are offered below the run's state, each as long as it can be done."""
        super().__init__(parent)
        self._actions = actions
        self._facts: DetailFields | None = None
        self._run: RunSummary | None = None
        self._dirty = False
        self._heading = ElidedLabel()
        self._heading.setObjectName("heading")
        self._state = QLabel(wordWrap=True)
        self._state.setTextFormat(Qt.TextFormat.PlainText)
        self._state.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.facts = self._make_facts()
        self.tags = QLineEdit()
        self.tags.setPlaceholderText("Separate with commas")
        self.tags.setAccessibleName("Tags of the chosen run")
        self.notes = QPlainTextEdit()
        self.notes.setPlaceholderText("What you tried and what you found …")
        self.notes.setAccessibleName("Notes on the chosen run")
        self.notes.setTabChangesFocus(True)
        self._pause = QTimer(self, interval=_PAUSE_MS, singleShot=True)
        self._pause.timeout.connect(self.keep)
        self.tags.textEdited.connect(self._typed)
        self.tags.editingFinished.connect(self.keep)
        self.notes.textChanged.connect(self._typed)
        self._hint = EmptyState(_NONE)
        self._halves = QSplitter()
        self._halves.setChildrenCollapsible(False)
        self._stack = QStackedWidget()
        self._lay_out()

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Shows the one run that is chosen; of several how many, of none what to do."""
        run = runs[0] if len(runs) == 1 else None
        before = self._run
        if before is not None and (run is None or run.run_id != before.run_id):
            self.keep()
        self._run = run
        if run is None:
            self._hint.setText(f"{counted(len(runs), 'run')} selected." if runs else _NONE)
            self._stack.setCurrentWidget(self._hint)
            return
        self._stack.setCurrentWidget(self._halves)
        if before is None or before.run_id != run.run_id:
            self.facts.clear()
            self._facts = None
        if before != run:
            self._show(run)
            in_background(lambda: read_facts(Path(run.folder)), self, self._show_facts, self._unread)

    def set_beside(self, beside: bool) -> None:
        """Lays the halves out one above the other where the details stand beside the list, else side by side."""
        self._halves.setOrientation(Qt.Orientation.Vertical if beside else Qt.Orientation.Horizontal)

    def keep(self) -> None:
        """Has what was typed written down."""
        self._pause.stop()
        if self._dirty and self._run is not None:
            self._dirty = False
            changes = {"tags": tags_of(self.tags.text()), "text": self.notes.toPlainText().strip()}
            if changes != {"tags": self._run.tags, "text": self._run.notes}:
                self.noted.emit(self._run, changes)

    def hideEvent(self, event: QHideEvent) -> None:
        self.keep()
        super().hideEvent(event)

    def _make_facts(self) -> QTreeWidget:
        tree = QTreeWidget()
        tree.setAccessibleName("Job and checkpoints of the chosen run")
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
        told = QWidget()
        left = QVBoxLayout(told)
        left.setContentsMargins(0, 0, 0, 0)
        left.setSpacing(4)
        left.addWidget(self._heading)
        left.addWidget(self._state)
        left.addLayout(self._row_of_actions())
        left.addWidget(self.facts, 1)
        said = QWidget()
        right = QVBoxLayout(said)
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(4)
        for text, widget in (("Ta&gs", self.tags), ("&Notes", self.notes)):
            label = QLabel(text)
            label.setObjectName("muted")
            label.setBuddy(widget)
            right.addWidget(label)
            right.addWidget(widget)
        self._halves.setHandleWidth(9)
        self._halves.addWidget(told)
        self._halves.addWidget(said)
        self._halves.setStretchFactor(0, 2)
        self._halves.setStretchFactor(1, 1)
        self._stack.addWidget(self._hint)
        self._stack.addWidget(self._halves)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._stack)

    def _row_of_actions(self) -> FlowLayout:
        row = FlowLayout(spacing=6)
        for action in self._actions:
            row.addWidget(bind(QPushButton(), action, offered=True))
        return row

    def _show(self, run: RunSummary) -> None:
        self._heading.setText(run_title(run))
        self._heading.setToolTip(run_title(run))
        self._state.setText(_state_words(run))
        if not self._dirty:  # what is being typed is newer
            blocked = self.notes.blockSignals(True)
            if self.notes.toPlainText().strip() != run.notes:
                self.notes.setWordWrapMode(_wrap_mode(run.notes))
                self.notes.setPlainText(run.notes)
            self.notes.blockSignals(blocked)
            if tags_of(self.tags.text()) != run.tags:
                self.tags.setText(", ".join(run.tags))

    def _show_facts(self, facts: DetailFields) -> None:
        if self._run is None or self._run.run_id != facts.run_id:
            return  # another has been chosen meanwhile
        if facts == self._facts:
            return
        self._facts = facts
        scrolled, current = self.facts.verticalScrollBar().value(), self.facts.currentItem()
        chosen = current.text(0) if current is not None else ""
        self.facts.clear()
        self._show_checkpoints(facts.checkpoints)
        self._section("Changed settings", job_lines(facts))
        self._section("On the disk", disk_lines(facts))
        self.facts.expandAll()
        for item in self.facts.findItems(chosen, Qt.MatchFlag.MatchExactly | Qt.MatchFlag.MatchRecursive):
            self.facts.setCurrentItem(item)
        self.facts.verticalScrollBar().setValue(scrolled)

    def _show_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        if not checkpoints:
            return
        lines = [(each.name, each.words) for each in checkpoints[:_MOST]]
        left = len(checkpoints) - _MOST
        more = [("", f"{localised(left)} older ones are in the run's folder")] if left > 0 else []
        items = self._section("Checkpoints", [*lines, *more])
        for item, checkpoint in zip(items, checkpoints[:_MOST], strict=False):
            item.setData(0, _PATH, checkpoint.path)
            item.setSizeHint(2, QSize(_BUTTON, _ROW))
            does = (
                "Starts a new run from these weights alone"
                if checkpoint.weights_alone
                else "Opens a new run in the form that continues from here"
            )
            item.setToolTip(0, f"{does} (Enter)")
            button = QToolButton()
            button.setText("Fork")
            button.setAccessibleName(f"Fork from {checkpoint.name}")
            button.setToolTip(does)
            button.setStyleSheet(f"min-height: {_ROW - 6}px; padding: 0 6px;")
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # Enter in its row does the same
            button.clicked.connect(lambda _on, item=item: self._fork(item))
            self.facts.setItemWidget(item, 2, button)

    def _fork(self, item: QTreeWidgetItem) -> None:
        path = item.data(0, _PATH)
        if path is not None and self._run is not None:
            self.fork_wanted.emit(self._run.run_id, path)

    def _section(self, heading: str, lines: Lines) -> list[QTreeWidgetItem]:
        """Adds lines below a heading, and answers them."""
        top = QTreeWidgetItem(self.facts, [heading])
        top.setFirstColumnSpanned(True)
        font = top.font(0)
        font.setBold(True)
        top.setFont(0, font)
        items = [QTreeWidgetItem(top, [name, value]) for name, value in lines]
        for item, (_name, value) in zip(items, lines, strict=True):
            item.setToolTip(1, value)
        return items

    def _unread(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            raise error
        self._facts = None
        self.facts.clear()
        self._section("On the disk", [("The run's folder", f"can't be read: {error.strerror}")])
        self.facts.expandAll()

    def _typed(self) -> None:
        self._dirty = True
        self._pause.start()


def _wrap_mode(text: str) -> QTextOption.WrapMode:
    longest = max(map(len, text.split()), default=0)
    modes = QTextOption.WrapMode
    return modes.WrapAnywhere if longest > _LONGEST_WORD else modes.WrapAtWordBoundaryOrAnywhere


def _state_words(run: RunSummary) -> str:
    """ "Failed after 3:12 min · best Top-1 80.0 % · started 2026-11-21 14:05", and why."""
    lasted = f"after {duration(run.seconds)}" if run.seconds is not None else ""
    if run.slurm and run.state in GOING_ON:
        first = f"{run.state.capitalize()} in SLURM, {run.slurm}"
    elif run.state == "waiting":
        first = "Waiting until its devices are free"
    elif run.state in GOING_ON:
        first = f"{run.state.capitalize()}: {doing(run)}"
    elif run.state == "interrupted":
        first = f"Interrupted {lasted} while {doing(run)}"
    else:
        first = f"{run.state.capitalize()} {lasted}"
    best = f"best {best_words(run, localised)}" if run.best else ""
    parts = [part for part in (first, best, f"started {moment(run.started)}") if part]
    return " · ".join(parts) + (f"\n{run.cause}" if run.cause else "")
