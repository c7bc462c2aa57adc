"""Command palette: searches commands, job fields, settings, GPUs, datasets, runs and models."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPalette
from PySide6.QtWidgets import QDialog, QLineEdit, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from engine.contract.catalogue import Catalogue
from engine.runs.folder import RunFolder, RunSummary
from gui.actions import Action
from gui.commands.files import make_folder_titles
from gui.form.fields import JobFields, find_section
from gui.format import format_date_and_time, localized
from gui.preferences.declared import SETTINGS
from gui.style import theme
from gui.titles import model_title, run_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import muted_label
from gui.widgets.layouts import vbox

MAX_ENTRIES = 100
"""Maximum number of listed entries."""
KINDS = (tr("Command"), tr("Field"), tr("Setting"), "GPU", tr("Dataset"), tr("Run"), tr("Model"))
"""Kinds of entries. Equally good matches are listed in this order."""
_ORDER = {kind: number for number, kind in enumerate(KINDS)}
_DISABLED, _AT_WORD_START, _IN_TITLE, _ELSEWHERE = 8, 16, 32, 64
"""Summands of an entry's rank: a disabled entry, and the position of each word unless it starts the title."""
_KIND_WIDTH, _PADDING = 84, 10


@dataclass(slots=True)
class Entry:
    """Entry of the command palette.

    Attributes:
        act: Function that is called when the entry is chosen.
        detail: Second line.
        key: Shortcut.
        disabled_reason: Reason why the entry can't be chosen, or "" if it can.
    """

    kind: str
    title: str
    act: Callable[[], object]
    detail: str = ""
    key: str = ""
    disabled_reason: str = ""
    searched_text: str = field(init=False)
    """Searched text in lower case. The title is preceded by a space and ends at index `title_end`."""
    title_end: int = field(init=False)
    order: int = field(init=False)
    """Rank of the entry, apart from the positions of the words. Lower ones are better."""

    def __post_init__(self) -> None:
        title = f" {self.title.lower()}"
        self.searched_text, self.title_end = f"{title} {self.kind.lower()} {self.detail.lower()}", len(title)
        self.order = _ORDER[self.kind] + (_DISABLED if self.disabled_reason else 0)


def find_entries(entries: Sequence[Entry], text: str) -> list[Entry]:
    """Return the entries that contain all words of `text`, best first.

    An entry with exactly this title is first. The others are ranked by position: start of the title, start of a word in
    the title, within the title, elsewhere. Ties are resolved by state (enabled first), kind, and order in `entries`.
    At most `MAX_ENTRIES` are returned, except that an empty text returns all entries in their order.
    """
    # `Entry.searched_text` starts with a space, so a match that includes the space is the start of a word.
    terms = [(f" {term}", term) for term in text.lower().split()]
    if not terms:
        return list(entries)
    found: list[tuple[int, int]] = []  # rank (the lowest is the best) and index of each match
    title = f" {text.lower().strip()}"
    for number, entry in enumerate(entries):
        searched_text, title_end, rank = entry.searched_text, entry.title_end, entry.order
        for at_word_start, term in terms:
            index = searched_text.find(at_word_start)
            if index == 0:  # start of the title
                continue
            if 0 < index < title_end:
                rank += _AT_WORD_START
                continue
            index_in_word = searched_text.find(term)
            if index_in_word < 0:
                break
            rank += _IN_TITLE if index_in_word < title_end else _ELSEWHERE
        else:
            # An entry with exactly this title is first.
            found.append((-1 if entry.searched_text[: entry.title_end] == title else rank, number))
    return [entries[number] for _rank, number in heapq.nsmallest(MAX_ENTRIES, found)]


class EntryModel(QAbstractListModel):
    """Model of the entries that match the typed words."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: Sequence[Entry] = ()
        self.matches: list[Entry] = []

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Replace the entries that the model searches, and list all of them."""
        self._entries = entries
        self.search("")

    def search(self, text: str) -> None:
        self.beginResetModel()
        self.matches = find_entries(self._entries, text)[:MAX_ENTRIES]  # without a text, all entries match
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.matches)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Return the title of an entry, its tool tip, its text for screen readers, or the entry itself (UserRole)."""
        if not index.isValid():
            return None
        entry = self.matches[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return entry.title
        if role == Qt.ItemDataRole.ToolTipRole:
            return entry.disabled_reason or entry.detail or None
        if role == Qt.ItemDataRole.AccessibleTextRole:
            texts = (entry.title, entry.kind, entry.key, entry.disabled_reason or entry.detail)
            return ", ".join(filter(None, texts))
        return entry if role == Qt.ItemDataRole.UserRole else None


class _EntryDelegate(QStyledItemDelegate):
    """Delegate that paints a palette entry: kind, title and shortcut, and below them details or why it is disabled."""

    def sizeHint(self, option: QStyleOptionViewItem, _index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(100, 2 * option.fontMetrics.height() + 12)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draw an entry: kind, title and keys, and below them its details or the reason why it is unavailable."""
        # Not through index.data(), because Qt would convert the entry to a variant and back.
        model = index.model()
        assert isinstance(model, EntryModel)
        entry, colors, metrics = model.matches[index.row()], theme.colors(), option.fontMetrics
        is_selected = bool(option.state & option.state.State_Selected)
        if is_selected:
            painter.fillRect(option.rect, option.palette.color(QPalette.ColorRole.Highlight))
        muted = colors.accent_text if is_selected else colors.muted
        area = option.rect.adjusted(_PADDING, 5, -_PADDING, -5)
        line = metrics.height() + 1
        kind_width = max(_KIND_WIDTH, metrics.horizontalAdvance(tr("Command")) + _PADDING)
        key_width = metrics.horizontalAdvance(entry.key) + _PADDING if entry.key else 0
        top = QRect(area.left() + kind_width, area.top(), area.width() - kind_width - key_width, line)
        below = QRect(area.left() + kind_width, area.top() + line, area.width() - kind_width, line)
        painter.setPen(muted)
        painter.drawText(QRect(area.left(), area.top(), kind_width, line), Qt.AlignmentFlag.AlignLeft, entry.kind)
        painter.drawText(
            QRect(area.right() - key_width, area.top(), key_width, line), Qt.AlignmentFlag.AlignRight, entry.key
        )
        detail = entry.detail
        if entry.disabled_reason:
            detail = tr("Unavailable: {why}").format(why=entry.disabled_reason)
        painter.drawText(
            below,
            Qt.AlignmentFlag.AlignLeft,
            metrics.elidedText(" ".join(detail.split()), Qt.TextElideMode.ElideMiddle, below.width()),
        )
        title_color = colors.accent_text if is_selected else colors.text
        painter.setPen(muted if entry.disabled_reason else title_color)
        painter.drawText(
            top, Qt.AlignmentFlag.AlignLeft, metrics.elidedText(entry.title, Qt.TextElideMode.ElideMiddle, top.width())
        )


class Palette(QDialog):
    """Popup at the top of the window with a search field and matching entries."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setWindowTitle(tr("Command palette"))
        self.setObjectName("palette")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.field = styled(QLineEdit(), name=tr("Find anything"))
        self.field.setPlaceholderText(tr("Commands, fields, settings, models, runs, datasets, GPUs…"))
        self.field.installEventFilter(self)
        self.field.textChanged.connect(self._search)
        self.model = EntryModel(self)
        self.list = styled(QListView(), name=tr("Matches"))
        self.list.setModel(self.model)
        self.list.setItemDelegate(_EntryDelegate(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.clicked.connect(self._run_entry)
        self.hint = muted_label()
        self.setLayout(vbox(self.field, self.list, self.hint, margins=(10, 10, 10, 8)))

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Open the palette with `entries` and an empty search field."""
        self.model.show_entries(entries)
        self.field.clear()
        self._search("")
        window = self.parentWidget()
        assert window is not None
        width, height = min(760, window.width() - 40), min(520, window.height() - 60)
        self.setFixedSize(width, height)
        window_left = window.mapToGlobal(window.rect().topLeft()).x()
        self.move(window_left + (window.width() - width) // 2, window.y() + 60)
        self.show()
        self.field.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let arrow keys move the selection, and Enter run the entry, while the search field has the focus."""
        if watched is not self.field or not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return super().eventFilter(watched, event)
        page = max(1, self.list.viewport().height() // max(1, self.list.sizeHintForRow(0)))
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: page, Qt.Key.Key_PageUp: -page}
        key = Qt.Key(event.key())
        if key in steps:
            self._choose(self.list.currentIndex().row() + steps[key], wrap=abs(steps[key]) == 1)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._run_entry(self.list.currentIndex())
        else:
            return super().eventFilter(watched, event)
        return True

    def _search(self, text: str) -> None:
        """List the entries that match `text`, select the first one, and update the hint below the list."""
        self.model.search(text)
        self._choose(0)
        if not self.model.matches:
            self.hint.setText(tr("Nothing matches “{text}”.").format(text=text.strip()))
        elif len(self.model.matches) == MAX_ENTRIES:
            self.hint.setText(
                tr("Showing the best {count}. Keep typing to narrow.").format(count=localized(MAX_ENTRIES))
            )
        else:
            self.hint.setText(tr("↑↓ Select · Enter Run · Esc Close"))

    def _choose(self, row: int, *, wrap: bool = False) -> None:
        """Select the entry at `row`. A row outside of the list wraps around if `wrap`, or else is limited to the list."""
        count = len(self.model.matches)
        if count:
            row = row % count if wrap else min(max(0, row), count - 1)
            self.list.setCurrentIndex(self.model.index(row))

    def _run_entry(self, index: QModelIndex) -> None:
        """Close the palette and run the entry at `index`. If it is disabled, show the reason instead."""
        if not index.isValid():
            return
        entry = self.model.matches[index.row()]
        if entry.disabled_reason:
            self.hint.setText(entry.disabled_reason)
            return
        self.hide()
        entry.act()


def create_action_entries(actions: Iterable[Action], window: QWidget) -> Iterator[Entry]:
    """Yield entries for the commands of the window and of the visible page."""
    for action in actions:
        parent = action.parent()
        if parent is window or (isinstance(parent, QWidget) and parent.isVisible()):
            title = (
                tr("{theme} theme").format(theme=action.title)
                if action.objectName().endswith("_theme")
                else action.title
            )
            yield Entry(
                kind=tr("Command"),
                title=title,
                act=action.trigger,
                detail=action.tip,
                key=action.shortcut().toString(QKeySequence.SequenceFormat.NativeText),
                disabled_reason=action.disabled_reason,
            )


def create_field_entries(fields: JobFields, show: Callable[[str], object]) -> Iterator[Entry]:
    """Yield an entry for each field of the visible job, which calls `show` with the field's name.

    Fields that have no effect with the current values of other fields are left out.
    """
    for name, row in fields.rows.items():
        if row.has_effect:
            section = find_section(name) or tr("New job")
            detail = f"{section}: {row.field.help} ({name})"
            yield Entry(tr("Field"), row.field.label, partial(show, name), detail)


def create_setting_entries(show: Callable[[str], object]) -> Iterator[Entry]:
    """Yield an entry for each setting, which calls `show` with the setting's key."""
    for setting in SETTINGS:
        yield Entry(tr("Setting"), setting.title, partial(show, setting.key), f"{setting.section}: {setting.help}")


def create_model_entries(catalogue: Catalogue, choose: Callable[[str, str], object]) -> Iterator[Entry]:
    """Yield an entry for each model, which calls `choose` with the task and the model."""
    tasks = {task.id: task.title for task in catalogue.tasks}
    for model in catalogue.models:
        task = tasks.get(model.task, model.task)
        detail = tr("{task} · {parameters} million parameters · {model}").format(
            task=task, parameters=localized(model.parameters / 1e6, 1), model=model.id
        )
        yield Entry(tr("Model"), model.title, partial(choose, model.task, model.id), detail)


def create_run_entries(runs: Sequence[RunSummary], show: Callable[[RunFolder], object]) -> Iterator[Entry]:
    """Yield an entry for each run, which calls `show` with the run's folder."""
    for run in runs:
        parts = (
            run.state,
            model_title(run.model),
            strategy_title(run.strategy),
            format_date_and_time(run.started),
            *run.tags,
        )
        detail = " · ".join((*parts, run.run_id))
        yield Entry(tr("Run"), run_title(run), partial(_show_run, run.folder, show), detail)


def create_dataset_entries(folders: Sequence[str], choose: Callable[[str], object]) -> Iterator[Entry]:
    """Yield an entry for each dataset folder, which calls `choose` with the folder."""
    for folder, title in make_folder_titles(folders).items():
        yield Entry(tr("Dataset"), title, partial(choose, folder), folder)


def create_gpu_entries(titles: dict[str, str], show: Callable[[str], object]) -> Iterator[Entry]:
    """Yield an entry for each GPU, which calls `show` with the GPU's key. `titles` maps keys to titles."""
    for key, title in titles.items():
        yield Entry("GPU", title, partial(show, key), tr("Show it in the Monitor"))


def _show_run(folder: str, show: Callable[[RunFolder], object]) -> None:
    show(RunFolder(folder))
