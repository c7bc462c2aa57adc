"""Grid of GPU tiles, which shows all of them at once if possible."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QEnterEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QMenu, QScrollArea, QWidget

from gui.monitor.gpus.gpu_fields import list_tile_figures, make_current_reader, make_past_reader
from gui.monitor.gpus.gpu_plot import GpuPlot
from gui.monitor.gpus.value_grid import ValueGrid
from gui.monitor.gpus.watched_gpu import EnergyCounters, WatchedGpu
from gui.plots.group import PlotGroup
from gui.sources.devices.device_format import join_states
from gui.sources.devices.history import DeviceHistory
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel, heading_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.tab_order import order_tabs

GAP = 8
IDEAL_ASPECT = 2.2
"""Ideal ratio of a tile's width to its height."""


def choose_column_count(count: int, width: int, height: int) -> int:
    """Return the number of columns that makes `count` tiles largest in an area of `width` by `height` pixels.

    If they can't all be visible, return the maximum number of columns.
    """
    max_columns = max(1, min(count, (width + GAP) // (theme.scale_pixels(MIN_WIDTH) + GAP)))
    best, best_size = max_columns, 0.0
    for columns in range(1, max_columns + 1):
        rows = -(-count // columns)
        tile_height = (height + GAP) / rows - GAP
        tile_width = (width + GAP) / columns - GAP
        size = min(tile_width / IDEAL_ASPECT, tile_height)
        if tile_height >= theme.scale_pixels(MIN_HEIGHT) and size > best_size:
            best, best_size = columns, size
    return best


class TilesView(QScrollArea):
    """Grid of GPU tiles.

    Signals:
        opened(str): the user wants to see the details of the GPU with this key.
        reset_energy(str): the user wants to reset the energy counter of the GPU with this key.
    """

    opened = Signal(str)
    reset_energy = Signal(str)

    def __init__(self, group: PlotGroup, energy: EnergyCounters) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._group = group
        self._energy = energy
        self.tiles: dict[str, Tile] = {}  # by key of the GPU
        self._gpus: dict[str, WatchedGpu] = {}  # by key, in the order of the tiles
        self._history: DeviceHistory | None = None
        self._columns = 0  # columns of the grid
        self._inside = QWidget()
        self._grid = QGridLayout(self._inside)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(GAP)
        self.setWidget(self._inside)
        group.cursor_changed.connect(self._on_cursor_moved)

    def show_gpus(self, gpus: Sequence[WatchedGpu], history: DeviceHistory) -> None:
        """Show a tile for each of `gpus`, in this order, with their readings in `history`."""
        self._history = history
        order = list(self._gpus)
        self._gpus = {watched.key: watched for watched in gpus}
        if list(self._gpus) != order:
            self._arrange()
        for watched in gpus:
            self.tiles[watched.key].show_gpu(watched, history)

    @property
    def columns(self) -> int:
        return self._columns

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._gpus and self._compute_columns() != self._columns:
            self._arrange()

    def _compute_columns(self) -> int:
        """Return the number of columns for the current size."""
        return choose_column_count(len(self._gpus), self.viewport().width(), self.viewport().height())

    def _arrange(self) -> None:
        """Create missing tiles, remove superfluous ones, and place all in the grid."""
        for key in [key for key in self.tiles if key not in self._gpus]:
            self.tiles.pop(key).deleteLater()
        for key, watched in self._gpus.items():
            if key not in self.tiles:
                tile = self.tiles[key] = Tile(watched, self._group, self._energy)
                tile.opened.connect(self.opened)
                tile.reset_energy.connect(self.reset_energy)
        previous_columns = self._columns
        self._columns = self._compute_columns()
        for index, key in enumerate(self._gpus):
            self._grid.addWidget(self.tiles[key], index // self._columns, index % self._columns)
        for column in range(max(previous_columns, self._columns)):
            self._grid.setColumnStretch(column, int(column < self._columns))
        order_tabs(self._inside, [self.tiles[key] for key in self._gpus])

    def _on_cursor_moved(self) -> None:
        """Show the values at the time of the crosshair in all tiles, or the current ones if there is no crosshair."""
        if self._history is None or not self.isVisible():
            return
        for key, watched in self._gpus.items():
            self.tiles[key].show_figures(watched, self._history)


MIN_WIDTH = 300
MIN_HEIGHT = 140
_STRIPE = 4
_RADIUS = 6
_PLOT_SHARE = 0.5
"""Minimum height of a graph as a fraction of its tile's height. It is never less than `_MIN_PLOT` pixels."""
_MIN_PLOT = 62
_MAX_ROWS = 4


class Tile(QFrame):
    """Tile with the graph and the values of a GPU. While the crosshair is visible, the values are those at its time.

    Enter or a double click opens the details. A stripe at the left has the device's color.

    Signals:
        opened(str): the user wants to see the details of the GPU with this key.
        reset_energy(str): the user wants to reset the energy counter of the GPU with this key.
    """

    opened = Signal(str)
    reset_energy = Signal(str)

    def __init__(self, watched: WatchedGpu, group: PlotGroup, energy: EnergyCounters) -> None:
        super().__init__()
        self.setObjectName("card")
        self.key = watched.key
        self._group = group
        self._energy = energy
        self.title = heading_label()
        self.chip = styled(ElidedLabel(), "muted")  # name of the GPU
        self.who = ElidedLabel()  # users of the GPU
        self.who.hide()
        self.who.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.state = ElidedLabel()
        self.figures = ValueGrid(max_rows=1)
        self.plot = GpuPlot(watched.title, group, dense=True)
        self.setFocusProxy(self.plot)
        self._more = _Arrow()
        self._more.clicked.connect(lambda: self.opened.emit(self.key))
        self._lay_out()

    def show_gpu(self, watched: WatchedGpu, history: DeviceHistory) -> None:
        """Show the GPU's current state or, if there is a crosshair, its values at that time."""
        self._show_names(watched)
        self._show_states(watched)
        self.show_figures(watched, history)
        self.plot.show_gpu(watched, history)

    def show_figures(self, watched: WatchedGpu, history: DeviceHistory) -> None:
        """Show the values at the time of the crosshair, or the current ones if there is no crosshair."""
        cursor = self._group.cursor
        read = make_current_reader(watched.gpu) if cursor is None else make_past_reader(history, self.key, cursor)
        figures = list_tile_figures(watched, read, self._energy.measure(watched))
        self.figures.show_figures(figures, faded=watched.is_outdated)
        self.setAccessibleDescription(
            ", ".join(filter(None, (self.state.text(), self.figures.text(), self.who.text())))
        )

    def sizeHint(self) -> QSize:
        return QSize(theme.scale_pixels(MIN_WIDTH), theme.scale_pixels(MIN_HEIGHT))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.scale_pixels(MIN_WIDTH), theme.scale_pixels(MIN_HEIGHT))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        head_height = self.title.sizeHint().height() + self.state.sizeHint().height() + 16
        plot_height = max(theme.scale_pixels(_MIN_PLOT), int(_PLOT_SHARE * self.height()))
        rows = (self.height() - head_height - plot_height) // self.figures.row_height
        self.figures.set_max_rows(min(_MAX_ROWS, max(1, rows)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit(self.key)
        else:
            super().keyPressEvent(event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.opened.emit(self.key)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(tr("Details")).triggered.connect(lambda: self.opened.emit(self.key))
        reset = menu.addAction(tr("Reset its energy counter"))
        reset.setEnabled(any(figure.id == "energy" for figure in self.figures.figures))
        reset.triggered.connect(lambda: self.reset_energy.emit(self.key))
        menu.addSection(tr("Lines of the graph"))
        menu.addActions(self.plot.line_actions(menu))
        menu.popup(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        outline = QPainterPath()
        outline.addRoundedRect(0, 0, self.width(), self.height(), _RADIUS, _RADIUS)
        painter.setClipPath(outline)
        painter.fillRect(0, 0, _STRIPE, self.height(), QColor(theme.device_color(self.key)))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.updateGeometry()

    def _show_names(self, watched: WatchedGpu) -> None:
        """Show the title and the name of the GPU, and set the accessible names that contain them."""
        self.title.setText(watched.title)
        self.chip.setText(watched.gpu.name)
        self.chip.setToolTip(watched.gpu.name)
        name = f"{watched.title}, {watched.gpu.name}"
        if name != self.accessibleName():
            self.setAccessibleName(name)
            self.plot.setAccessibleName(name)
            self._more.setAccessibleName(tr("Details of {title}").format(title=watched.title))
            self._more.setToolTip(tr("Details of {title} (Enter)").format(title=watched.title))

    def _show_states(self, watched: WatchedGpu) -> None:
        """Show states and users next to each other. The longer text gets more of the width."""
        text = join_states(watched.states)
        self.state.setText(text)
        self.state.setToolTip(text)
        theme.set_kind(self.state, "warning" if watched.is_alarming else "muted")
        self.who.setText(watched.users_text)
        self.who.setToolTip(watched.users_text)
        self.who.setVisible(bool(watched.users_text))
        theme.set_kind(self.who, "warning" if watched.is_shared else "")
        for label in (self.state, self.who):
            self._state_row.setStretchFactor(label, 1 + len(label.text()))

    def _lay_out(self) -> None:
        head = hbox(self.title, (self.chip, 1), self._more)
        self._state_row = hbox(self.state, self.who)
        self.setLayout(
            vbox(head, self._state_row, self.figures, (self.plot, 1), spacing=2, margins=(_STRIPE + 8, 5, 8, 4))
        )


class _Arrow(QAbstractButton):
    """Small arrow that opens the details by mouse. It isn't needed with the keyboard, where Enter does the same."""

    SIDE = 16
    """Width and height in pixels at a text size of 100%."""

    def __init__(self) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        theme.scale_with_text(self.setFixedWidth, self.SIDE)
        theme.scale_with_text(self.setFixedHeight, self.SIDE)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def paintEvent(self, event: QPaintEvent) -> None:
        icons.icon("right", "text" if self.underMouse() else "muted").paint(QPainter(self), self.rect())

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self.update()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.update()
