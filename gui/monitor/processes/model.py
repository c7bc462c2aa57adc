"""Item model of the GPU processes. Rows keep their identity between snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from operator import attrgetter
from typing import Any

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, QSortFilterProxyModel, Qt
from PySide6.QtGui import QColor, QFont, QGuiApplication, QIcon, QPainter, QPixmap

from engine.system.format import NOT_KNOWN, duration
from gui.format import localized, size
from gui.monitor.processes.process_rows import Key, ProcessRow
from gui.style import theme
from gui.style.icons import icon
from gui.titles import format_gpu_names
from gui.translation import tr
from gui.widgets.column_model import LEFT, NOTHING, RIGHT, Index, header_data
from gui.widgets.row_model import Column

SORT_ROLE = Qt.ItemDataRole.UserRole
"""Item role of the sort key, a number or a text."""
_UNKNOWN = -1.0
_SWATCH_GAP = 2
KINDS = {"compute": tr("Compute"), "graphics": tr("Graphics"), "both": tr("Both")}


@dataclass(frozen=True)
class ProcessColumn(Column[ProcessRow]):
    """Column of the process table. The sort key of an unknown value is None or ""."""

    widest: str = ""
    """Longest text that must fit into the column."""


def _percent(value: float | None) -> str:
    return f"{localized(value)}%" if value is not None else NOT_KNOWN


def _format_running_time(seconds: int | None) -> str:
    """Format a duration, as in "3:12 min" or "2 d 5 h", or return a dash for None."""
    if seconds is None:
        return NOT_KNOWN
    days, rest = divmod(seconds, 86_400)
    return f"{days} d {rest // 3600} h" if days else duration(seconds)


def _create_number_column(
    title: str, attribute: str, text: Callable[[Any], str], widest: str, help_text: str = ""
) -> ProcessColumn:
    """Create a column for the numeric `attribute` of a row, which is None if it is unknown.

    `text` formats the value for display. `widest` is a text that is as wide as the widest value, for the column's
    width.
    """
    read = attrgetter(attribute)
    return ProcessColumn(title, lambda row: text(read(row)), read, is_numeric=True, widest=widest, help=help_text)


COLUMNS: tuple[ProcessColumn, ...] = (
    ProcessColumn(tr("Process"), lambda line: line.title, lambda line: line.title.lower()),
    _create_number_column("PID", "pid", lambda pid: NOT_KNOWN if pid is None else str(pid), "4194304"),
    ProcessColumn(tr("Host"), lambda line: line.host_title, lambda line: line.host_title.lower()),
    ProcessColumn(tr("User"), lambda line: line.user or NOT_KNOWN, lambda line: line.user),
    ProcessColumn("GPU", lambda line: format_gpu_names(line.gpus), lambda line: format_gpu_names(line.gpus)),
    _create_number_column(tr("GPU memory"), "memory_used_bytes", size, "140.4 GiB", tr("GPU memory held by the process")),
    _create_number_column(
        "SM", "sm_percent", _percent, "100%",
        tr("Share of SM time; averaged over its GPUs if it holds several"),
    ),
    _create_number_column("CPU", "cpu_percent", _percent, "6,400%", tr("In % of one core: 400% is four cores at full load")),
    _create_number_column(
        tr("Host memory"), "host_memory_bytes", size, "140.4 GiB",
        tr("Host memory held by the process, including shared memory"),
    ),
    _create_number_column(tr("Running"), "running_s", _format_running_time, "23:59:59 h", tr("Time since the process started")),
    ProcessColumn(tr("Type"), lambda line: KINDS[line.kind], lambda line: KINDS[line.kind]),
    ProcessColumn(tr("Command"), lambda line: line.command, lambda line: line.command.lower()),
)  # fmt: skip
PROCESS, HOST, GPU, GPU_MEMORY = 0, 2, 4, 5
COMMAND = len(COLUMNS) - 1


@dataclass(eq=False)
class _Node:
    """Node of the process tree. Model indexes store its `number`, so that an outdated index finds no node."""

    number: int
    line: ProcessRow | None
    parent: _Node | None
    children: list[_Node] = field(default_factory=list)

    @property
    def row(self) -> int:
        return self.parent.children.index(self) if self.parent is not None else 0


class ProcessModel(QAbstractItemModel):
    """Tree model of `ProcessRow`s, each below its parent."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._node_numbers = count(1)
        self._root = _Node(number=0, line=None, parent=None)
        self._nodes: dict[int, _Node] = {}  # by `number`, without the root
        self._known_columns: set[int] = set()  # columns in which any process has had a value

    def show_lines(self, lines: Iterable[ProcessRow]) -> None:
        """Replace all rows of the model with `lines`.

        Rows that exist before and after keep their indexes. Rows whose parent is missing move to the top level.
        """
        lines = list(lines)
        keys = {line.key for line in lines}
        rows_by_parent: dict[Key | None, list[ProcessRow]] = {}
        for line in lines:
            rows_by_parent.setdefault(line.parent if line.parent in keys else None, []).append(line)
        for number, column in enumerate(COLUMNS):
            if any(column.key(line) not in (None, "") for line in lines):
                self._known_columns.add(number)
        self._update_children(self._root, None, rows_by_parent)

    def line(self, index: Index) -> ProcessRow | None:
        node = self._node(index)
        return node.line if node is not None else None

    def find(self, key: Key) -> QModelIndex:
        """Return the index of the row with this key, or an invalid index if the row no longer exists."""
        node = next((node for node in self._nodes.values() if node.line is not None and node.line.key == key), None)
        return self._index_of(node) if node is not None else QModelIndex()

    def has_been_known(self, column: int) -> bool:
        """Return True if any process has had a value in a column."""
        return column in self._known_columns

    def index(self, row: int, column: int, parent: Index = NOTHING) -> QModelIndex:
        node = self._node(parent)
        is_inside = node is not None and 0 <= row < len(node.children) and 0 <= column < len(COLUMNS)
        if node is None or not is_inside or parent.column() > 0:
            return QModelIndex()
        return self.createIndex(row, column, node.children[row].number)

    def parent(self, index: Index = NOTHING) -> QModelIndex:  # type: ignore[override]
        node = self._node(index)
        return self._index_of(node.parent) if node is not None and node.parent is not None else QModelIndex()

    def rowCount(self, parent: Index = NOTHING) -> int:
        node = self._node(parent)
        return len(node.children) if node is not None and parent.column() <= 0 else 0

    def columnCount(self, parent: Index = NOTHING) -> int:
        return len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        return header_data(COLUMNS, section, orientation, role)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's data. Rows of groups are bold."""
        line = self.line(index)
        if line is None:
            return None
        column = COLUMNS[index.column()]
        value: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            value = column.text(line)
            if index.column() == PROCESS and line.note:
                value += f" · {line.note}"
        elif role == SORT_ROLE:
            value = _sort_key(column, line)
        elif role == Qt.ItemDataRole.TextAlignmentRole:
            value = RIGHT if column.is_numeric else LEFT
        elif role == Qt.ItemDataRole.ToolTipRole:
            value = describe(line)
        elif role == Qt.ItemDataRole.DecorationRole:
            value = _decoration(line, index.column())
        elif role == Qt.ItemDataRole.FontRole and line.group:
            value = _bold()
        return value

    def _node(self, index: Index) -> _Node | None:
        return self._nodes.get(index.internalId()) if index.isValid() else self._root

    def _index_of(self, node: _Node | None) -> QModelIndex:
        if node is None or node is self._root:
            return QModelIndex()
        return self.createIndex(node.row, 0, node.number)

    def _update_children(
        self, node: _Node, key: Key | None, rows_by_parent: dict[Key | None, list[ProcessRow]]
    ) -> None:
        """Update the children of `node` and their children. Nodes of rows that remain are reused.

        `key` is the key of the row of `node`, or None for the root. `rows_by_parent` contains all rows by the key of
        their parent.
        """
        by_key = {row.key: row for row in rows_by_parent.get(key, [])}
        for index in reversed(range(len(node.children))):
            if _key(node.children[index]) not in by_key:
                self._remove(node, index)
        present = {_key(child): child for child in node.children}
        self._append_children(node, [row for row in by_key.values() if row.key not in present])
        changed = [index for index, child in enumerate(node.children) if child.line != by_key[_key(child)]]
        for child in node.children:
            child.line = by_key[_key(child)]
        if changed:  # one signal for the whole range is cheaper than one per row
            first, last = node.children[changed[0]], node.children[changed[-1]]
            self.dataChanged.emit(self._index_of(first), self._index_of(last).siblingAtColumn(len(COLUMNS) - 1))
        for child in node.children:
            self._update_children(child, _key(child), rows_by_parent)

    def _append_children(self, node: _Node, lines: list[ProcessRow]) -> None:
        """Append rows to the children of `node`."""
        if not lines:
            return
        first = len(node.children)
        self.beginInsertRows(self._index_of(node), first, first + len(lines) - 1)
        for line in lines:
            child = _Node(next(self._node_numbers), line, node)
            self._nodes[child.number] = child
            node.children.append(child)
        self.endInsertRows()

    def _remove(self, node: _Node, row: int) -> None:
        self.beginRemoveRows(self._index_of(node), row, row)
        self._unregister(node.children.pop(row))
        self.endRemoveRows()

    def _unregister(self, node: _Node) -> None:
        del self._nodes[node.number]
        for child in node.children:
            self._unregister(child)


class ProcessRows(QSortFilterProxyModel):
    """Proxy model that sorts and filters a `ProcessModel`. Parents of visible rows remain visible."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self._only_mine = False
        self._device = ""
        self.setSortRole(SORT_ROLE)
        self.setRecursiveFilteringEnabled(True)

    def set_filter(self, *, text: str, only_mine: bool, device: str) -> None:
        """Show only processes that match all arguments.

        Args:
            text: Words that a row and its parents together contain.
            only_mine: True to hide the processes of other users.
            device: Key of the GPU that a process uses, or "" for any GPU.
        """
        self._text, self._only_mine, self._device = text.lower(), only_mine, device
        self.setFilterFixedString(text)  # filters all rows again; newer Qt versions don't have invalidateFilter

    def line(self, index: QModelIndex) -> ProcessRow | None:
        source = self.sourceModel()
        return source.line(self.mapToSource(index)) if isinstance(source, ProcessModel) and index.isValid() else None

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        """Return True for a process that passes the filters and contains all words of the search.

        Groups are only visible as parents of such processes.
        """
        source = self.sourceModel()
        assert isinstance(source, ProcessModel)
        index = source.index(row, 0, parent)
        line = source.line(index)
        if line is None or line.group:
            return False  # a group is visible only if one of its members is
        if (self._only_mine and not line.mine) or (self._device and self._device not in line.devices):
            return False
        terms = self._text.split()
        texts = _search_text(source, index) if terms else ""
        return all(term in texts for term in terms)


def _search_text(model: ProcessModel, index: QModelIndex) -> str:
    """Return the text of a row and its parents in lower case."""
    texts = []
    while (line := model.line(index)) is not None:
        texts += [*(column.text(line) for column in COLUMNS), line.note]
        index = index.parent()
    return "\n".join(texts).lower()


def _sort_key(column: ProcessColumn, line: ProcessRow) -> str | float:
    """Return the sort key of a row, lowest for unknown values.

    Numbers become floats, because Qt can't compare small with large integers.
    """
    key = column.key(line)
    if column.is_numeric:
        return _UNKNOWN if key is None else float(key)
    return str(key or "")


def describe(line: ProcessRow) -> str:
    """Return the title, the warning and the command of a row, for a tool tip."""
    title = line.title
    if not line.group and line.pid is not None:
        title = tr("{title}, pid {pid}").format(title=title, pid=line.pid)
    note = f"⚠ {line.note[:1].upper()}{line.note[1:]}" if line.note else ""
    return "\n".join(filter(None, (title, note, line.command)))


def _key(node: _Node) -> Key:
    assert node.line is not None
    return node.line.key


def _decoration(line: ProcessRow, column: int) -> QIcon | None:
    if column == GPU:
        return _swatches(tuple(theme.device_color(device) for device in line.devices))
    return icon("warning", "warning") if column == PROCESS and line.note else None


def swatches_width(count: int) -> int:
    """Return the width in pixels of the color squares for `count` GPUs."""
    return count * (_swatch_width(count) + _SWATCH_GAP)


def _swatch_width(count: int) -> int:
    return 9 if count <= 4 else 4


@lru_cache(maxsize=64)
def _swatches(colors: tuple[str, ...]) -> QIcon:
    """Return an icon with a square in the color of each GPU. Many GPUs get narrow squares."""
    width, height = _swatch_width(len(colors)), 9
    image = QPixmap(max(1, swatches_width(len(colors))), height)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    for number, color in enumerate(colors):
        painter.fillRect(number * (width + _SWATCH_GAP), 0, width, height, QColor(color))
    painter.end()
    swatch_icon = QIcon(image)
    swatch_icon.addPixmap(image, QIcon.Mode.Selected)  # a style would tint the selected icon
    return swatch_icon


def _bold() -> QFont:
    font = QFont(QGuiApplication.font())
    font.setWeight(QFont.Weight.DemiBold)
    return font
