"""Details of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QSizePolicy,
    QTableWidgetItem,
    QWidget,
)

from engine.contract.devices import GpuProcess, NvLink
from engine.gpus.quantities import describe_xid
from gui.format import clock, percent, size, size_of, throughput
from gui.monitor.gpus.gpu_fields import GROUPS, FigureGroup, list_groups, make_current_reader, make_past_reader
from gui.monitor.gpus.gpu_plot import GpuPlot
from gui.monitor.gpus.value_grid import ValueGrid
from gui.monitor.gpus.watched_gpu import EnergyCounters, WatchedGpu
from gui.plots.group import PlotGroup
from gui.sources.devices.device_format import join_states
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.column_model import RowWidget, apply_table_style
from gui.widgets.labels import ElidedLabel, heading_label
from gui.widgets.layouts import hbox, scroll_panel, vbox, with_layout


class TextTable(RowWidget):
    """Table of texts that updates only changed cells, so that the selection doesn't change."""

    def __init__(self, name: str, titles: Sequence[str]) -> None:
        super().__init__(0, len(titles))
        self.setAccessibleName(name)
        self.setHorizontalHeaderLabels(list(titles))
        apply_table_style(self, leading=9)
        self.setAlternatingRowColors(False)
        header = self.horizontalHeader()
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Replace the texts. If the number of rows changes, fit the height of the table to them."""
        if len(rows) != self.rowCount():
            self.setRowCount(len(rows))
            self._fit_height()
        for row, cells in enumerate(rows):
            for column, text in enumerate(cells):
                item = self.item(row, column)
                if item is None:
                    self.setItem(row, column, QTableWidgetItem(text))
                elif item.text() != text:
                    item.setText(text)

    def _fit_height(self) -> None:
        rows = sum(self.rowHeight(row) for row in range(self.rowCount()))
        self.setFixedHeight(self.horizontalHeader().sizeHint().height() + rows + 2 * self.frameWidth() + 2)


_PLOT_HEIGHT = 260
_GROUP_WIDTH = 330
"""Minimum width of a group in pixels."""


class _GroupCard(QFrame):
    """Card with a group of values below its title."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setObjectName("card")
        self.title = title
        self.figures = ValueGrid()
        self.setLayout(vbox(heading_label(title), self.figures, 1, spacing=6, margins=(12, 8, 12, 8)))
        self.setAccessibleName(title)

    def show_group(self, group: FigureGroup, *, faded: bool) -> None:
        """Show the values of `group`. If `faded`, draw them in gray because they are outdated."""
        self.figures.show_figures(group.figures, faded=faded)
        self.setAccessibleDescription(self.figures.text())


class GpuDetail(QWidget):
    """Details of a GPU: graph, all values in groups, and tables of processes, MIG instances, links and errors.

    While the crosshair is visible, values are those at its time. Escape returns to the overview.

    Signals:
        closed(): the user wants to return to the overview.
        reset_energy(str): the user wants to reset the energy counter of the GPU with this `WatchedGpu.key`.
    """

    closed = Signal()
    reset_energy = Signal(str)

    def __init__(self, group: PlotGroup, energy: EnergyCounters) -> None:
        super().__init__()
        self._group = group
        self._energy = energy
        self._gpu: WatchedGpu | None = None
        self._history: DeviceHistory | None = None
        self._cards: dict[str, _GroupCard] = {}  # by title of the group
        self.back = push_button(
            tr("‹ All GPUs"), self.closed, name=tr("Back to all GPUs"), tip=tr("Back to all GPUs (Escape)")
        )
        self.reset = QPushButton(tr("Count energy from now"))
        self.reset.setToolTip(tr("Reset this GPU's energy counter"))
        self.reset.clicked.connect(self._on_reset_clicked)
        self._title = heading_label()
        self._gpu_name = styled(ElidedLabel(), "muted")
        self._state = QLabel(wordWrap=True)
        self._users = QLabel(wordWrap=True)
        self.plot = GpuPlot(tr("History"), group, dense=False)
        self.plot.setFixedHeight(_PLOT_HEIGHT)
        self.processes = TextTable(
            tr("Processes on this GPU"), (tr("Pid"), tr("User"), tr("Command"), tr("Type"), tr("Memory"), "SMs")
        )
        self.instances = TextTable(
            tr("MIG instances"), (tr("Instance"), tr("Profile"), tr("Memory in use"), tr("Used by"))
        )
        self.links = TextTable("NVLinks", (tr("Link"), tr("State"), tr("Version"), tr("In"), tr("Out"), tr("Leads to")))
        self.xids = TextTable(tr("Errors that the driver reported"), (tr("Time"), tr("Error")))
        self._sections: list[tuple[TextTable, QLabel]] = []  # tables with their headings
        self._lay_out()

    @property
    def key(self) -> str:
        """Key of the visible GPU, or "" before the first one."""
        return self._gpu.key if self._gpu is not None else ""

    def show_gpu(self, watched: WatchedGpu, all_gpus: Sequence[WatchedGpu], history: DeviceHistory) -> None:
        """Show the details of a GPU, with its readings in `history`. `all_gpus` are the GPUs in the overview."""
        if watched.key != self.key:
            self.plot.forget()
        self._gpu, self._history = watched, history
        self._show_head(watched)
        self.plot.show_gpu(watched, history)
        self._show_figures()
        self._show_tables(watched, all_gpus)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _show_head(self, watched: WatchedGpu) -> None:
        """Show the title, name, states and users of a GPU. Alarming states and shared use have the warning color.

        The button that resets the energy is only visible for a GPU that reports its energy.
        """
        self._title.setText(watched.title)
        self._gpu_name.setText(watched.gpu.name)
        self.plot.setAccessibleName(f"{watched.title}, {watched.gpu.name}")
        self._state.setText(join_states(watched.states))
        self._state.setVisible(bool(watched.states))
        theme.set_kind(self._state, "warning" if watched.is_alarming else "muted")
        self._users.setText(watched.users_text)
        theme.set_kind(self._users, "warning" if watched.is_shared else "")
        self._users.setVisible(bool(watched.users_text))
        self.reset.setVisible(watched.gpu.energy_j is not None)

    def _show_figures(self) -> None:
        """Show the GPU's current values, or those at the time of the crosshair."""
        watched, history, cursor = self._gpu, self._history, self._group.cursor
        if watched is None or history is None:
            return
        read = make_current_reader(watched.gpu) if cursor is None else make_past_reader(history, watched.key, cursor)
        groups = {group.title: group for group in list_groups(watched, read, self._energy.measure(watched))}
        new_titles = [title for title in groups if title not in self._cards]
        self._cards |= {title: _GroupCard(title) for title in new_titles}
        if new_titles:
            self._arrange()
        for title, card in self._cards.items():
            card.setVisible(title in groups)
            if title in groups:
                card.show_group(groups[title], faded=watched.is_outdated)

    def _on_reset_clicked(self) -> None:
        if self._gpu is not None:
            self.reset_energy.emit(self._gpu.key)

    def _on_cursor_moved(self) -> None:
        if self.isVisible():
            self._show_figures()

    def _show_tables(self, watched: WatchedGpu, all_gpus: Sequence[WatchedGpu]) -> None:
        """Fill the tables of processes, MIG instances, links and errors of a GPU, and hide tables without rows.

        The MIG instances are found among `all_gpus`.
        """
        gpu = watched.gpu
        instances = [instance for instance in all_gpus if _is_instance(instance, watched)]
        self.processes.show_rows([_process_row(process) for process in gpu.processes or ()])
        self.instances.show_rows([_instance_row(instance) for instance in instances])
        self.links.show_rows([_link_row(link) for link in gpu.nvlinks])
        self.xids.show_rows([[clock(xid.time), describe_xid(xid.number)] for xid in reversed(gpu.xids)])
        for table, heading in self._sections:
            heading.setVisible(table.rowCount() > 0)
            table.setVisible(table.rowCount() > 0)

    def _arrange(self) -> None:
        """Place the groups in as many columns as fit."""
        order = [title for title in GROUPS if title in self._cards]
        columns = max(1, min(len(order), self.width() // _GROUP_WIDTH))
        for index, title in enumerate(order):
            self._grid.addWidget(self._cards[title], index // columns, index % columns)
        for column in range(self._grid.columnCount()):  # the grid keeps columns that are no longer used
            self._grid.setColumnStretch(column, int(column < columns))

    def _lay_out(self) -> None:
        """Build the layout. Collect the tables and their headings in `_sections`."""
        head = hbox(self.back, self._title, (self._gpu_name, 1), self.reset, spacing=10)
        self._grid = QGridLayout()
        self._grid.setSpacing(8)
        body = vbox(self.plot, self._grid)
        for table in (self.processes, self.instances, self.links, self.xids):
            heading = heading_label(table.accessibleName())
            self._sections.append((table, heading))
            body.addWidget(heading)
            body.addWidget(table)
        body.addStretch(1)
        scroll = scroll_panel(with_layout(body))
        scroll.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # lets the arrow keys scroll
        scroll.setAccessibleName(tr("Details of the GPU"))
        self.setLayout(vbox(head, self._state, self._users, (scroll, 1)))
        self._group.cursor_changed.connect(self._on_cursor_moved)


def _is_instance(instance: WatchedGpu, parent: WatchedGpu) -> bool:
    """Return True if a GPU is a MIG instance of `parent`."""
    return (
        instance.host == parent.host
        and instance.gpu.mig is not None
        and instance.gpu.mig.parent_uuid == parent.gpu.uuid
    )


def _process_row(process: GpuProcess) -> list[str]:
    memory = "" if process.memory_used_bytes is None else size(process.memory_used_bytes)
    share = "" if process.sm_percent is None else percent(process.sm_percent)
    return [
        f"{process.pid}", process.user or "", process.command or process.name or "", process.kind.capitalize(), memory, share,
    ]  # fmt: skip


def _instance_row(instance: WatchedGpu) -> list[str]:
    gpu = instance.gpu
    profile = gpu.mig.profile if gpu.mig is not None else ""
    return [instance.title, profile, size_of(gpu.memory_used_bytes, gpu.memory_total_bytes), instance.users_text]


def _link_row(link: NvLink) -> list[str]:
    version = "" if link.version is None else f"{link.version}"
    rates = ["" if rate is None else throughput(rate) for rate in (link.received_bytes_per_s, link.sent_bytes_per_s)]
    return [f"{link.link}", tr("active") if link.active else tr("not active"), version, *rates, link.peer]
