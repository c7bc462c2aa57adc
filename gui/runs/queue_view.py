"""View of the runs that wait for devices, with buttons that change their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QHeaderView, QPushButton, QWidget

from engine.runs import queue
from engine.runs.folder import RunFolder
from engine.runs.queue import CannotQueue
from gui.actions import HERE, Action, bind
from gui.format import counted
from gui.sources.background import SingleFlight, in_background
from gui.sources.run_queue import CannotReturn, QueuePosition, put_back, read_queue_positions, start_now, take_out
from gui.style import theme
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.banner import QuestionBar
from gui.widgets.buttons import styled
from gui.widgets.labels import heading_label, muted_label
from gui.widgets.layouts import FlowLayout, vbox
from gui.widgets.row_model import Column, RowModel, RowTable

POLL_MS = 1000
"""Milliseconds between reads while the queue is visible. Otherwise, it is read together with the list of runs."""

_VISIBLE_ROWS = 4
_MAX_NAME_WIDTH = 170
"""Maximum width of the name column, in pixels at a text size of 100%."""

COLUMNS: tuple[Column[QueuePosition], ...] = (
    Column(tr("Position"), lambda position: str(position.number)),
    Column(tr("Run"), lambda position: position.name),
    Column(tr("Devices"), lambda position: position.devices),
    Column(tr("Waits for"), lambda position: position.waits_for),
    Column(tr("Since"), lambda position: position.since),
)
_RUN, _WAITS_FOR = 1, 3


class QueueModel(RowModel[QueuePosition]):
    """Model with a row for each queued run, in queue order."""

    columns = COLUMNS

    def key_of(self, row: QueuePosition) -> str:
        return row.run_id

    def cell_data(self, row: QueuePosition, column: int, role: int) -> Any:
        """Return the text of a cell as its tool tip or, in the first column, an icon that shows if the run is held."""
        if role == Qt.ItemDataRole.ToolTipRole:
            return COLUMNS[column].text(row)
        if role == Qt.ItemDataRole.DecorationRole and column == 0:
            return icon("pause", "text") if row.held else icon("clock", "accent")
        return None


class QueueTable(RowTable):
    """Table of the queue, which shows at most a few rows at once."""

    def __init__(self, model: QueueModel) -> None:
        super().__init__(model, tr("Queued runs"), leading=10)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setFrameShape(QFrame.Shape.NoFrame)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(_WAITS_FOR, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(_RUN, QHeaderView.ResizeMode.Interactive)
        theme.notifier.changed.connect(self.fit)

    def fit(self) -> None:
        """Fit the name column to its texts, and the height to at most a few rows."""
        self.setColumnWidth(_RUN, min(theme.scale_pixels(_MAX_NAME_WIDTH), self.content_width(_RUN)))
        rows = min(_VISIBLE_ROWS, max(1, self.model().rowCount()))
        header = self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(header + rows * self.verticalHeader().defaultSectionSize() + 2 * self.frameWidth())


class QueueView(QWidget):
    """Table of the queue with its buttons. It is hidden while no run is queued.

    Signals:
        run_chosen(RunFolder): the user has opened a run.
        changed(): the user has changed the queue.
        message(str): an error message for the user.
    """

    run_chosen = Signal(object)
    changed = Signal()
    message = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.model = QueueModel(self)
        self.table = QueueTable(self.model)
        self.removal = QuestionBar(tr("Removing a run from the queue"))
        self.count = muted_label()
        self.acts = {
            "up": self._create_action("up", tr("Up"), tr("Move the run up"), "Alt+Up"),
            "down": self._create_action("down", tr("Down"), tr("Move the run down"), "Alt+Down"),
            "first": self._create_action(
                "first", tr("First"), tr("Move the run to the front of the queue"), "Alt+Home"
            ),
            "hold": self._create_action("hold", tr("Hold"), "", "H"),
            "start": self._create_action(
                "start", tr("Start now"), tr("Start the run now and share its devices with other runs")
            ),
            "remove": self._create_action(
                "remove", tr("Remove"), tr("Remove the run from the queue; it can be put back"), tr("Delete")
            ),
        }
        self.buttons = {name: bind(QPushButton(), action) for name, action in self.acts.items()}
        self.reading = SingleFlight(self, lambda: read_queue_positions, self._on_read, self._on_unread)
        self._card = styled(QFrame(), "card")
        self._error = ""  # error that was reported last
        self._removed: QueuePosition | None = None  # run that can be put back
        self._timer = QTimer(self, interval=POLL_MS)
        self._timer.timeout.connect(self.refresh)
        self._lay_out()
        self._connect()
        self.hide()

    def refresh(self) -> None:
        """Read the queue on a worker thread. If a read is in progress, schedule another one."""
        self.reading.request()

    def current(self) -> QueuePosition | None:
        """Return the selected run, or None if there is none."""
        row = self.table.currentIndex().row()
        return self.model.rows[row] if 0 <= row < self.model.count() else None

    def close_work(self) -> None:
        """Stop polling, and wait for the current read when the window closes."""
        self._timer.stop()
        self.reading.finish()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def _create_action(self, name: str, text: str, tip: str, *keys: str) -> Action:
        return Action(self.table, f"queue_{name}", text, tip, *keys, context=HERE)

    def _lay_out(self) -> None:
        top = FlowLayout(spacing=8, line_spacing=4)
        for widget in (heading_label(tr("Queue")), self.count, *self.buttons.values()):
            top.addWidget(widget)
        self._card.setLayout(vbox(top, self.table, spacing=4, margins=(12, 6, 8, 6)))
        self.setLayout(vbox(self._card, self.removal, spacing=6))

    def _connect(self) -> None:
        # `queue.move` gets the number of positions, negative towards the front.
        changes: dict[str, Callable[[QueuePosition], object]] = {
            "up": lambda run: queue.move(run.run_id, -1),
            "down": lambda run: queue.move(run.run_id, 1),
            "first": lambda run: queue.move(run.run_id, 1 - run.number),
            "hold": lambda run: queue.release(run.run_id) if run.held else queue.hold(run.run_id),
            "start": lambda run: start_now(run.folder),
        }
        for name, change in changes.items():
            self.acts[name].on_trigger(partial(self._change_selected_run, change))
        self.acts["remove"].on_trigger(self._remove)
        self.table.opened.connect(lambda index: self.run_chosen.emit(RunFolder(self.model.rows[index.row()].folder)))
        self.table.selectionModel().currentChanged.connect(lambda _now, _before: self._update_buttons())
        # The buttons are “Put back” and “Close”.
        self.removal.yes.clicked.connect(self._put_back)
        self.removal.no.clicked.connect(self._close_removal)

    def _on_read(self, positions: list[QueuePosition]) -> None:
        """Show the queue if it has changed, and select its first run if none is selected."""
        self._error = ""
        if positions != self.model.rows:
            self.model.set_rows(positions)
            if positions and not self.table.currentIndex().isValid():
                self.table.setCurrentIndex(self.model.index(0, 0))
            self.table.fit()
            text = tr("{runs} waits") if len(positions) == 1 else tr("{runs} wait")
            self.count.setText(text.format(runs=counted(len(positions), "run")))
        self._update_buttons()
        self._update_visibility()

    def _on_unread(self, error: Exception) -> None:
        """Report why the queue can't be read, but only once for the same error."""
        if not isinstance(error, CannotQueue | OSError):
            raise error
        if str(error) != self._error:
            self._error = str(error)
            self.message.emit(tr("Can't read the queue: {error}").format(error=error))

    def _update_visibility(self) -> None:
        """Hide the table if the queue is empty. Then hide the view, too, unless it offers to put back a removed run."""
        self._card.setVisible(bool(self.model.rows))
        self.setVisible(bool(self.model.rows) or not self.removal.isHidden())

    def _update_buttons(self) -> None:
        """Enable and label the actions for the selected run.

        If a button with the focus is disabled, focus the table.
        """
        position = self.current()
        if position is not None and position.held:
            self.acts["hold"].set_appearance(tr("Release"), tr("Let the run start when its devices are free"))
        else:
            tip = tr("Let other runs start first until you release this one; it keeps its position")
            self.acts["hold"].set_appearance(tr("Hold"), tip)
        for name, button in self.buttons.items():
            had_focus = button.hasFocus()
            self.acts[name].set_disabled_reason(self._find_disabled_reason(name, position))
            if had_focus and not self.acts[name].ready:
                self.table.setFocus()
            button.setAccessibleName(f"{button.text()}: {position.name}" if position is not None else button.text())

    def _find_disabled_reason(self, name: str, position: QueuePosition | None) -> str:
        """Return the reason why the action `name` doesn't apply to the run at `position`, or "" if it does.

        `position` is None if no run is selected.
        """
        if position is None:
            return tr("Select a run")
        if name in ("up", "first") and position.number == 1:
            return tr("The run is the first")
        if name == "down" and position.number == self.model.count():
            return tr("The run is the last")
        return ""

    def _change_selected_run(self, change: Callable[[QueuePosition], object]) -> None:
        """Call `change` with the selected run on a worker thread."""
        position = self.current()
        if position is not None:
            in_background(lambda: change(position), self, self._on_changed, self._on_failed)

    def _on_changed(self, _result: object) -> None:
        self.refresh()
        self.changed.emit()

    def _on_failed(self, error: Exception) -> None:
        """Report why the queue couldn't be changed, and read the queue again.

        Raises `error` if it is of an unexpected type.
        """
        if not isinstance(error, CannotQueue | CannotReturn | OSError):
            raise error
        self.message.emit(tr("Couldn't change the queue: {error}").format(error=error))
        self.refresh()

    def _remove(self) -> None:
        """Remove the selected run from the queue on a worker thread, then offer to put it back."""
        position = self._removed = self.current()
        if position is not None:
            self.removal.show_note(tr("Removing “{name}” from the queue…").format(name=position.name))
            self.removal.no.setFocus()
            removed, failed = partial(self._on_removed, position), partial(self._on_removal_failed, position)
            in_background(lambda: take_out(position.folder), self, removed, failed)

    def _on_removed(self, position: QueuePosition, _result: object) -> None:
        """Offer to put the removed run back, and report the change of the queue."""
        if self._removed == position:  # the user hasn't closed the bar or removed another run
            text = tr("“{name}” was removed from the queue. It stays in the list of runs.").format(name=position.name)
            self.removal.show_message(text, "ok", tr("Put back"), tr("Close"))
            self._update_visibility()
        self._on_changed(None)

    def _on_removal_failed(self, position: QueuePosition, error: Exception) -> None:
        if self._removed == position:
            self._close_removal()
        self._on_failed(error)

    def _put_back(self) -> None:
        """Append the run that was removed last to the queue, on a worker thread."""
        position = self._removed
        self._close_removal()
        if position is not None:
            in_background(lambda: put_back(position.folder), self, self._on_changed, self._on_failed)

    def _close_removal(self) -> None:
        """Hide the bar that offers to put back a removed run."""
        self._removed = None
        self.removal.hide()
        self._update_visibility()
        if self.model.rows:  # otherwise, Qt has moved the focus to the widget after the hidden view
            self.table.setFocus()
