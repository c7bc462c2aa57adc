"""The runs that wait for their devices, above the list of all: in which order, for what, and how that is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from engine.runs import queue
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue
from gui.actions import HERE, Action, bind
from gui.format import counted
from gui.sources.background import SingleFlight, in_background
from gui.sources.run_queue import CannotReturn, QueuePosition, line_now, put_back, start_now, take_out
from gui.style.icons import icon
from gui.widgets.column_model import ColumnModel, Index
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.question_bar import QuestionBar
from gui.widgets.table_look import apply_table_style

LOOK_EVERY_MS = 1000
"""While some wait and are in sight; else as often as the list of runs is read."""

_ROWS_SHOWN = 4
_WIDEST_NAME, _PADDING = 170, 5


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[int, QueuePosition], str]
    """Of the row's place, from 1, and what stands there."""
    number: bool = False
    help: str = ""


COLUMNS = (
    _Column("Place", lambda place, _: str(place)),
    _Column("Run", lambda _, position: position.name),
    _Column("Devices", lambda _, position: position.devices),
    _Column("Waits for", lambda _, position: position.waits_for),
    _Column("Since", lambda _, position: position.since),
)
_RUN, _WAITS_FOR = 1, 3


class LineModel(ColumnModel):
    """A row for each run in line, in its order."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.positions: list[QueuePosition] = []

    def show_positions(self, positions: list[QueuePosition]) -> None:
        self.beginResetModel()
        self.positions = positions
        self.endResetModel()

    def row(self, run_id: str) -> int | None:
        return next((row for row, position in enumerate(self.positions) if position.run_id == run_id), None)

    def count(self) -> int:
        return len(self.positions)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        position = self.positions[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return COLUMNS[index.column()].text(index.row() + 1, position)
        if role == Qt.ItemDataRole.DecorationRole and index.column() == 0:
            return icon("pause", "text") if position.held else icon("clock", "accent")
        return None


class LineTable(QTableView):
    """Shows a `LineModel`.

    Signals: opened() - the chosen run is to be shown.
    """

    opened = Signal()

    def __init__(self, model: LineModel) -> None:
        super().__init__()
        self._model = model
        self.setAccessibleName("Runs in line")
        self.setModel(model)
        apply_table_style(self, padding=_PADDING, leading=10)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setFrameShape(QFrame.Shape.NoFrame)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(_WAITS_FOR, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(_RUN, QHeaderView.ResizeMode.Interactive)
        self.doubleClicked.connect(self.opened)

    def chosen(self) -> QueuePosition | None:
        row = self.currentIndex().row()
        return self._model.positions[row] if 0 <= row < len(self._model.positions) else None

    def choose(self, run_id: str) -> None:
        """Makes that run the current one, else the first."""
        row = self._model.row(run_id) or 0
        if self._model.positions:
            self.setCurrentIndex(self._model.index(row, 0))

    def fit(self) -> None:
        """Is as high as its rows, of which a few are in sight at once, with room for the names."""
        self.setColumnWidth(_RUN, min(_WIDEST_NAME, self.sizeHintForColumn(_RUN) + 2 * _PADDING))
        rows = min(_ROWS_SHOWN, max(1, self._model.rowCount()))
        self.setFixedHeight(
            self.horizontalHeader().sizeHint().height() + rows * self.verticalHeader().defaultSectionSize() + 2
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.chosen() is not None:
            self.opened.emit()
        else:
            super().keyPressEvent(event)


class QueueView(QWidget):
    """Hidden while no run waits and nothing of the line is to be told.

    Signals:
        run_chosen(RunFolder): a run is to be shown.
        changed(): a run has left the line or stands in it again.
        message(str): what went wrong, in words for the user.
    """

    run_chosen = Signal(object)
    changed = Signal()
    message = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = LineModel(self)
        self.table = LineTable(self.model)
        self.removed = QuestionBar("Taking a run out of the line")
        self._count = QLabel()
        self._count.setObjectName("muted")
        before, after = (
            "Moves the run up",
            "Moves the run down",
        )
        self.acts = {
            "up": self._act("up", "Up", before, "Alt+Up"),
            "down": self._act("down", "Down", after, "Alt+Down"),
            "first": self._act("first", "First", "Moves the run to the front of the queue", "Alt+Home"),
            "hold": self._act("hold", "Hold", "", "H"),
            "start": self._act("start", "Start now", "Starts the run now and shares its devices with other runs"),
            "remove": self._act("remove", "Remove", "Removes the run from the queue; it can be put back", "Delete"),
        }
        self.buttons = {wanted: bind(QPushButton(), action) for wanted, action in self.acts.items()}
        self._card = QFrame()
        self._card.setObjectName("card")
        self.reading = SingleFlight(self, lambda: line_now, self._looked, self._not_looked)
        self._complaint = ""
        self._last_removed: tuple[QueuePosition, int] | None = None
        self._returning: tuple[str, int] | None = None
        self._timer = QTimer(self, interval=LOOK_EVERY_MS)
        self._lay_out()
        self._connect()
        self.hide()

    def look(self) -> None:
        """Read the queue on a thread, once more if a reading is under way."""
        self.reading.request()

    def act(self, wanted: str) -> None:
        """Does what a button or a key of the table asks for with the chosen run."""
        position = self.table.chosen()
        if position is None:
            return
        run_id = position.run_id
        match wanted:
            case "show":
                self.run_chosen.emit(RunFolder(position.folder))
            case "up":
                self._do(lambda: queue.move(run_id, -1))
            case "down":
                self._do(lambda: queue.move(run_id, 1))
            case "first":
                self._do(lambda: queue.move(run_id, -len(self.model.positions)))
            case "hold":
                self._do(lambda: queue.release(run_id) if position.held else queue.hold(run_id))
            case "start":
                in_background(lambda: start_now(position.folder), self, lambda _none: self._back(), self._not_done)
            case "remove":
                self._remove(position)

    def close_work(self) -> None:
        """Stop polling and wait for the current reading, at the end of the window."""
        self._timer.stop()
        self.reading.finish()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    # Making it

    def _act(self, name: str, text: str, tip: str, *keys: str) -> Action:
        return Action(self.table, f"queue_{name}", text, tip, *keys, context=HERE)

    def _lay_out(self) -> None:
        heading = QLabel("Queue")
        heading.setObjectName("heading")
        top = FlowLayout(spacing=8, line_spacing=4)
        for widget in (heading, self._count, *self.buttons.values()):
            top.addWidget(widget)
        inside = QVBoxLayout(self._card)
        inside.setContentsMargins(12, 6, 8, 6)
        inside.setSpacing(4)
        inside.addLayout(top)
        inside.addWidget(self.table)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(self._card)
        layout.addWidget(self.removed)

    def _connect(self) -> None:
        for wanted, action in self.acts.items():
            action.on_trigger(partial(self.act, wanted))
        self.table.opened.connect(lambda: self.act("show"))
        self.table.selectionModel().currentChanged.connect(lambda _now, _before: self._show_buttons())
        self.removed.yes.clicked.connect(self._put_back)
        self.removed.no.clicked.connect(self._forget_removed)
        self._timer.timeout.connect(self.look)

    # The line

    def _looked(self, positions: list[QueuePosition]) -> None:
        self._complaint = ""
        if positions != self.model.positions:
            chosen = self.table.chosen()
            self.model.show_positions(positions)
            self.table.choose(chosen.run_id if chosen is not None else "")
            self.table.fit()
            self._count.setText(f"{counted(len(positions), 'run')} {'waits' if len(positions) == 1 else 'wait'}")
        self._show_buttons()
        self._show_what_there_is()
        self._see_to_one_put_back()

    def _not_looked(self, error: Exception) -> None:
        if not isinstance(error, CannotQueue | OSError):
            raise error
        if str(error) != self._complaint:
            self._complaint = str(error)
            self.message.emit(f"Can't read the queue: {error}")

    def _show_what_there_is(self) -> None:
        self._card.setVisible(bool(self.model.positions))
        self.setVisible(bool(self.model.positions) or not self.removed.isHidden())

    def _show_buttons(self) -> None:
        position = self.table.chosen()
        row = self.model.row(position.run_id) if position is not None else None
        held = position is not None and position.held
        if held:
            self.acts["hold"].set_appearance("Release", "Lets the run start when its devices are free")
        else:
            tip = "Lets others start first until you release the run; it keeps its position"
            self.acts["hold"].set_appearance("Hold", tip)
        last = len(self.model.positions) - 1
        for wanted, button in self.buttons.items():
            at_its_end = (wanted in ("up", "first") and row == 0) or (wanted == "down" and row == last)
            had_focus = button.hasFocus()
            self.acts[wanted].allow("Select a run" if row is None else "Already there" if at_its_end else "")
            if had_focus and not self.acts[wanted].ready:
                self.table.setFocus()
            button.setAccessibleName(f"{button.text()}: {position.name}" if position is not None else button.text())

    # What is done with it

    def _do(self, function: Callable[[], object]) -> None:
        in_background(function, self, lambda _done: self.look(), self._not_done)

    def _not_done(self, error: Exception) -> None:
        if not isinstance(error, CannotQueue | CannotReturn | OSError):
            raise error
        self.message.emit(f"Could not change the queue: {error}")
        self.look()

    def _remove(self, position: QueuePosition) -> None:
        row = self.model.row(position.run_id) or 0
        self._last_removed = position, row
        self.removed.say(f"Removing “{position.name}” from the queue …", "info", "", "Close")
        self.removed.no.setFocus()
        in_background(lambda: take_out(position.folder), self, lambda _none: self._gone(position), self._not_gone)

    def _gone(self, position: QueuePosition) -> None:
        if self._last_removed is not None and self._last_removed[0] == position:
            self.removed.say(
                f"“{position.name}” was removed from the queue. It stays in the list of runs.",
                "ok",
                "Put back",
                "Close",
            )
            self._show_what_there_is()
        self.look()
        self.changed.emit()

    def _not_gone(self, error: Exception) -> None:
        self._forget_removed()
        self._not_done(error)

    def _put_back(self) -> None:
        if self._last_removed is None:
            return
        position, row = self._last_removed
        self._forget_removed()
        self._returning = position.run_id, row
        in_background(lambda: put_back(position.folder), self, lambda _none: self._back(), self._not_done)

    def _back(self) -> None:
        self.look()
        self.changed.emit()

    def _see_to_one_put_back(self) -> None:
        """A run that comes back stands at the end of the line: it goes to where it was."""
        if self._returning is None:
            return
        run_id, before = self._returning
        row = self.model.row(run_id)
        if row is not None:
            self._returning = None
            self.table.choose(run_id)
            if row > before:
                self._do(lambda: queue.move(run_id, before - row))

    def _forget_removed(self) -> None:
        self._last_removed = None
        self.removed.hide()
        self._show_what_there_is()
        self.table.setFocus()
