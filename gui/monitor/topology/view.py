"""View with a matrix of the connections between GPUs, and advice for training."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QObject, Qt
from PySide6.QtGui import QBrush, QColor, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QGridLayout,
    QHeaderView,
    QLabel,
    QStackedWidget,
    QTableView,
    QWidget,
)

from engine.contract.devices import Gpu, GpuAffinity, GpuPair, Snapshot, gpu_title
from gui.monitor.topology import connections
from gui.monitor.topology.connections import ConnectedGpus, Kind
from gui.sources.devices.device_format import gpu_sort_key
from gui.sources.devices.hosts import Hosts
from gui.style import fills, theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.column_model import NOTHING, Index
from gui.widgets.editors import ComboBox, fill_combo_box
from gui.widgets.labels import EmptyState, heading_label, muted_label
from gui.widgets.layouts import hbox, scroll_panel, vbox, with_layout

_CORES = tr("Cores")
"""Title of the column with the nearest cores."""
_ROOMY, _TIGHT = 92, 46
"""Minimum widths in pixels of a cell with a description below its code, and of a cell with the code only."""
_WIDEST = _ROOMY + 20
"""Maximum width of a cell in pixels."""
_LEADING = 14
"""Space above and below the text of a cell in pixels, together."""
_SHARES: dict[Kind, float] = {"nvlink": 0.4, "switch": 0.34, "bridge": 0.22, "nodes": 0.44, "unknown": 0.0}
"""Fraction of the connection color in a cell's background, by kind of connection."""


def cell_color(kind: Kind) -> QColor:
    """Return the background color of a cell for a kind of connection, on which the theme's text is readable."""
    scheme = theme.colors()
    front = {"nvlink": scheme.ok, "switch": scheme.accent, "bridge": scheme.warning, "nodes": scheme.warning}
    return fills.blend(front.get(kind, scheme.muted), scheme.panel, _SHARES[kind])


class ConnectionModel(QAbstractTableModel):
    """Model with a row and a column for each GPU, followed by columns for NUMA node and nearest cores if known.

    If `roomy`, cells have a description below the code.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.connected = ConnectedGpus((), {})
        self.roomy = True
        self._affinities: dict[int, GpuAffinity] = {}
        self._extra_titles: tuple[str, ...] = ()

    def show_gpus(self, connected: ConnectedGpus, affinities: dict[int, GpuAffinity]) -> None:
        """Show the connections of GPUs, with columns for the NUMA node and the cores if these are known for any GPU.

        `affinities` contains the NUMA nodes and cores, by NVML index.
        """
        self.beginResetModel()
        self.connected, self._affinities = connected, affinities
        is_known = {
            "NUMA": any(affinity.numa_node is not None for affinity in affinities.values()),
            _CORES: any(affinity.cores for affinity in affinities.values()),
        }
        self._extra_titles = tuple(title for title in is_known if is_known[title])
        self.endResetModel()

    def set_roomy(self, roomy: bool) -> None:
        if roomy != self.roomy:
            self.roomy = roomy
            self._repaint()

    def rowCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.connected.gpus)

    def columnCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() or not self.connected.gpus else len(self.connected.gpus) + len(self._extra_titles)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        count = len(self.connected.gpus)
        if role == Qt.ItemDataRole.DisplayRole and 0 <= section < count:
            title = gpu_title(self.connected.gpus[section])
            return title if self.roomy or orientation == Qt.Orientation.Vertical else title.removeprefix("GPU ")
        if role == Qt.ItemDataRole.ToolTipRole and 0 <= section < count:
            return _describe_gpu(self.connected.gpus[section])
        if orientation == Qt.Orientation.Horizontal and count <= section < self.columnCount():
            return self._extra_titles[section - count] if role == Qt.ItemDataRole.DisplayRole else None
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignCenter
        gpu, column = self.connected.gpus[index.row()], index.column()
        if column >= len(self.connected.gpus):
            return self._affinity_data(gpu, self._extra_titles[column - len(self.connected.gpus)], role)
        return self._pair_data(gpu, self.connected.gpus[column], role)

    def _pair_data(self, gpu: Gpu, other: Gpu, role: int) -> Any:
        """Return the data of the cell for a pair of GPUs: code, color or description, depending on the role."""
        is_same_gpu, pair = gpu is other, self.connected.pair(gpu, other)
        if role == Qt.ItemDataRole.DisplayRole:
            return "" if is_same_gpu else self._cell_text(pair)
        if role == Qt.ItemDataRole.BackgroundRole:
            return QBrush(QColor(theme.colors().grid) if is_same_gpu else cell_color(connections.kind(pair)))
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            return gpu_title(gpu) if is_same_gpu else connections.describe(pair, gpu_title(gpu), gpu_title(other))
        return None

    def _cell_text(self, pair: GpuPair | None) -> str:
        code = connections.code(pair) + (" ✕" if pair is not None and pair.peer_access is False else "")
        return f"{code}\n{connections.describe_briefly(pair)}" if self.roomy and pair is not None else code

    def _affinity_data(self, gpu: Gpu, column: str, role: int) -> str | None:
        """Return the NUMA node or the nearest cores of a GPU, a dash if unknown, or None for roles without a text."""
        affinity = self._affinities.get(gpu.nvml_index, GpuAffinity(index=gpu.nvml_index))
        node = "" if affinity.numa_node is None else str(affinity.numa_node)
        text = affinity.cores if column == _CORES else node
        return (text or "–") if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole) else None

    def _repaint(self) -> None:
        if self.connected.gpus:
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, self.columnCount() - 1))
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, self.columnCount() - 1)


class TopologyView(QWidget):
    """Matrix of the connections between the GPUs of a host, with advice above and a legend below."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts
        self._shown_state: object = None  # data that the visible matrix was made from
        self.model = ConnectionModel(self)
        self.host = styled(ComboBox(), name=tr("Host"))
        self.advice = QLabel(wordWrap=True)
        self.advice.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.table = _Table(self.model)
        self._legend = Legend()
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._lay_out()
        hosts.snapshot.connect(self._refresh_if_visible)
        hosts.changed.connect(self._refresh_if_visible)
        self.host.currentIndexChanged.connect(self.refresh)

    def refresh(self) -> None:
        """Show the topology in the last snapshot, if it has changed."""
        snapshots = self._hosts.snapshots
        self._list_hosts(snapshots)
        snapshot = snapshots.get(self.host.currentData() or "") or next(iter(snapshots.values()), None)
        physical = _list_physical_gpus(snapshot)
        gpus = [gpu for gpu in physical if not gpu.lost]
        left_out = connections.describe_lost_gpus([gpu for gpu in physical if gpu.lost])
        topology = snapshot.topology if snapshot is not None else None
        empty = self._explain_empty_view(snapshot, gpus, left_out)
        state = (topology, [(gpu.uuid, gpu_title(gpu), gpu.name) for gpu in gpus], empty, left_out)
        if state == self._shown_state:
            return
        self._shown_state = state
        self._empty.setText(empty)
        self._stack.setCurrentIndex(0 if empty else 1)  # the text, or the matrix
        if topology is not None and not empty:
            connected = connections.make_connected_gpus(gpus, topology)
            self.model.show_gpus(connected, {affinity.index: affinity for affinity in topology.affinities})
            self.advice.setText(f"{connections.recommend_strategies(connected)} {left_out}".strip())
            self._legend.show_pairs(list(connected.pairs.values()))
            self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        self.table.fit(self.width())

    def _lay_out(self) -> None:
        heading = heading_label(tr("GPU interconnect"))
        top = hbox(heading, 1, self.host)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(scroll_panel(with_layout(vbox(self.advice, self.table, self._legend, 1, spacing=12))))
        self.setLayout(vbox(top, (self._stack, 1), margins=(0, 10, 0, 4)))

    def _refresh_if_visible(self) -> None:
        if self.isVisible():
            self.refresh()

    def _list_hosts(self, snapshots: dict[str, Snapshot]) -> None:
        """Offer the hosts in the list that selects one, and hide the list if there is only one host."""
        offered = [(snapshot.host, host) for host, snapshot in snapshots.items()]
        fill_combo_box(self.host, offered, self.host.currentData())
        self.host.setVisible(len(offered) > 1)

    def _explain_empty_view(self, snapshot: Snapshot | None, gpus: list[Gpu], left_out: str) -> str:
        """Return the reason why there is no matrix, or "" if there is one.

        `snapshot` is None before the first one. `left_out` is a sentence about lost GPUs, or "".
        """
        if snapshot is None:
            return tr("Looking for devices…")
        if not gpus:
            return left_out or snapshot.nvml.message or tr("This machine has no NVIDIA GPU.")
        if len(gpus) == 1:
            return f"{_describe_single_gpu(gpus[0], snapshot)}\n\n{left_out}".strip()
        if snapshot.topology is None or not snapshot.topology.pairs:
            return tr(
                "The driver does not report how the {gpus_count} GPUs are connected.\n\nIt does so only on Linux, and "
                "while at least two of them are awake."
            ).format(gpus_count=len(gpus))
        return ""


class _Table(QTableView):
    """Table that is as large as its cells and doesn't scroll."""

    def __init__(self, model: ConnectionModel) -> None:
        super().__init__()
        self._matrix = model
        self.setModel(model)
        self.setAccessibleName(tr("Topology of the GPUs"))
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setCornerButtonEnabled(False)
        self.setTabKeyNavigation(False)
        for header in (self.horizontalHeader(), self.verticalHeader()):
            header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
            header.setHighlightSections(True)
            header.setMinimumSectionSize(1)
        self.verticalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)

    def fit(self, max_width: int) -> None:
        """Use wide cells if they fit into `max_width` pixels, and resize the table to its cells.

        Columns after those of the GPUs have the width of their contents.
        """
        count, columns = self._matrix.rowCount(), self._matrix.columnCount()
        if not count:
            return
        for column in range(count, columns):
            self.resizeColumnToContents(column)
        other_widths = sum(self.columnWidth(column) for column in range(count, columns))
        other_widths += self.verticalHeader().sizeHint().width() + 2 * self.frameWidth()
        self._matrix.set_roomy(max_width - other_widths >= count * theme.scale_pixels(_ROOMY))
        even_width = (max_width - other_widths) // count
        width = max(theme.scale_pixels(_TIGHT), min(even_width, theme.scale_pixels(_WIDEST)))
        line_count = 2 if self._matrix.roomy else 1
        for number in range(count):
            self.setColumnWidth(number, width)
            self.setRowHeight(number, line_count * self.fontMetrics().height() + _LEADING)
        content_width = count * width + other_widths
        height = self.horizontalHeader().sizeHint().height() + self.verticalHeader().length() + 2 * self.frameWidth()
        scrolling = self.horizontalScrollBar().sizeHint().height() if content_width > max_width else 0
        self.setFixedSize(min(content_width, max_width), height + scrolling)


class Legend(QWidget):
    """Legend for the codes in the matrix."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(10)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(1, 1)
        self._swatches: list[tuple[QLabel, Kind]] = []
        theme.notifier.changed.connect(self.recolor)

    def show_pairs(self, pairs: list[GpuPair]) -> None:
        """Explain the connections of `pairs`, close ones first, and the sign for missing peer access."""
        for label in self.findChildren(QLabel):
            self._grid.removeWidget(label)
            label.deleteLater()
        self._swatches = []
        entries = {
            ("NV#" if pair.nvlinks else connections.code(pair)): pair
            for pair in pairs
            if connections.kind(pair) != "unknown"
        }
        for row, (code, pair) in enumerate(sorted(entries.items(), key=lambda entry: _rank(entry[1]))):
            swatch = QLabel(code)
            swatch.setAlignment(Qt.AlignmentFlag.AlignCenter)
            theme.scale_with_text(swatch.setMinimumWidth, _TIGHT)
            self._swatches.append((swatch, connections.kind(pair)))
            self._grid.addWidget(swatch, row, 0)
            self._grid.addWidget(muted_label(_describe_pair(pair), word_wrap=True), row, 1)
        if any(pair.peer_access is False for pair in pairs):
            cross = QLabel("✕")
            cross.setAlignment(Qt.AlignmentFlag.AlignCenter)
            self._grid.addWidget(cross, len(entries), 0)
            self._grid.addWidget(
                muted_label(tr("neither can read the other's memory directly"), word_wrap=True), len(entries), 1
            )
        self.recolor()

    def recolor(self) -> None:
        for swatch, kind in self._swatches:
            swatch.setStyleSheet(f"background: {cell_color(kind).name()}; padding: 1px 6px;")


def _rank(pair: GpuPair) -> tuple[int, int]:
    """Return a sort key that puts close connections first: NVLinks, then PCIe paths in the order of `PATHS`."""
    path_index = list(connections.PATHS).index(pair.path) if pair.path is not None else 0
    return 0 if pair.nvlinks else 1, path_index


def _describe_pair(pair: GpuPair) -> str:
    if pair.nvlinks:
        return tr("number of NVLinks")
    return connections.PATHS[pair.path] if pair.path is not None else ""


def _list_physical_gpus(snapshot: Snapshot | None) -> list[Gpu]:
    """Return the GPUs of a snapshot, or [] if it is None, except MIG instances, which have no connections."""
    gpus = snapshot.gpus if snapshot is not None else ()
    return sorted((gpu for gpu in gpus if gpu.mig is None), key=gpu_sort_key)


def _describe_gpu(gpu: Gpu) -> str:
    """Return the name, UUID and PCI address of a GPU for a tool tip."""
    address = tr("PCI {pci_bus_id}").format(pci_bus_id=gpu.pci_bus_id) if gpu.pci_bus_id else ""
    return "\n".join(filter(None, (gpu.name, gpu.uuid, address)))


def _describe_single_gpu(gpu: Gpu, snapshot: Snapshot) -> str:
    """Return a text for a machine with a single GPU: its name and, if known, its nearest CPU cores."""
    affinities = snapshot.topology.affinities if snapshot.topology is not None else ()
    affinity = next((affinity for affinity in affinities if affinity.index == gpu.nvml_index), None)
    text = tr("This machine has a single GPU, the {name}.").format(name=gpu.name)
    if affinity is None or not affinity.cores:
        return text
    near = (
        tr("The nearest CPU cores are {cores}.")
        if affinity.numa_node is None
        else tr("The nearest CPU cores are {cores} (NUMA node {node}).")
    ).format(cores=affinity.cores, node=affinity.numa_node)
    return f"{text}\n\n{near}"
