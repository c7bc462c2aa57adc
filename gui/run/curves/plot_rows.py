"""Rows with the plots of a run, and the view of a single enlarged plot."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QSplitter,
    QToolButton,
    QWidget,
)

from gui.actions import bind, create_back_action
from gui.plots.plot import LinePlot
from gui.sources.settings import Settings
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.buttons import tool_button
from gui.widgets.layouts import hbox, vbox

FIRST_FRACTION = 0.46
"""Minimum height of the first plot, as a fraction of the window's height."""
_CURVE_HEIGHT, _TEXT_HEIGHT = 105, 45
"""Minimum heights of the curves and the texts of a plot in pixels. That of the texts is for a text size of 100%."""
_WIDE = 1500
"""Minimum width for rows of three plots, in pixels at a text size of 100%."""
_SETTING = "run_plots"


class PlotRows(QWidget):
    """Plots in rows. The first one is tall and has its own row. The others are in rows of two, or of three if they fit.

    Signals:
        enlarge_requested(str): the user wants to enlarge the plot with this name.

    Attributes:
        order: Names of all plots in display order.
        chosen: Names of the plots that the user wants to see.
    """

    enlarge_requested = Signal(str)

    def __init__(self, plots: Mapping[str, LinePlot], settings: Settings) -> None:
        super().__init__()
        self.plots = dict(plots)
        self._settings = settings
        self.order, self.chosen = _parse_choice(settings.text(_SETTING), list(plots))
        self._empty: set[str] = set()  # plots without data are hidden
        self._enlarged = ""  # plot that is shown elsewhere
        self._rows: list[list[str]] = []  # names of the plots in each row
        self._visible_height: int | None = None  # pixels that are visible without scrolling, once known
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._hidden_holder = QWidget(self)  # parent of the plots that aren't in a row
        self._hidden_holder.hide()
        self.setLayout(vbox(self._splitter))
        for name, plot in self.plots.items():
            plot.setParent(self._hidden_holder)
            plot.add_button(self._create_enlarge_button(name, plot))
        self._arrange()

    def choose(self, order: list[str], chosen: set[str]) -> None:
        """Show the plots `chosen` in `order` and save the choice."""
        self.order, self.chosen = order, chosen
        self._settings.set(_SETTING, " ".join(name if name in chosen else f"-{name}" for name in order))
        self._arrange()

    def set_empty(self, name: str, *, is_empty: bool) -> None:
        """Hide a plot while `is_empty` is True, because the run has no data for it."""
        if is_empty:
            self._empty.add(name)
        else:
            self._empty.discard(name)
        self._arrange()

    def take_plot(self, name: str) -> LinePlot:
        """Return the plot `name`. The caller may show it elsewhere until calling `put_plot_back`."""
        self._enlarged = name
        return self.plots[name]

    def put_plot_back(self) -> None:
        """Put the plot that `take_plot` has returned last back into its row, and focus the plot."""
        enlarged, self._enlarged = self._enlarged, ""
        self._rows = []  # forces `_arrange` to recreate the rows
        self._arrange()
        if enlarged:
            self.plots[enlarged].setFocus()

    def set_visible_height(self, pixels: int) -> None:
        """Set the visible height in pixels, and fit the first row so that the second row is visible, too."""
        self._visible_height = pixels
        self._set_heights()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._set_heights()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()
        self._set_heights()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enlarge the focused plot on Enter."""
        focused = next((name for name, plot in self.plots.items() if plot.hasFocus()), "")
        if focused and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.enlarge_requested.emit(focused)
        else:
            super().keyPressEvent(event)

    def _arrange(self) -> None:
        """Recreate the rows of visible plots, unless they are unchanged. The first plot gets a tall row of its own."""
        visible = [name for name in self.order if name in self.chosen and name not in self._empty]
        per_row = 3 if self.width() >= theme.scale_pixels(_WIDE) else 2
        rows = [visible[:1]] if visible else []
        rows += [visible[start : start + per_row] for start in range(1, len(visible), per_row)]
        if rows == self._rows:
            return
        self._rows = rows
        for name, plot in self.plots.items():
            if name != self._enlarged:
                plot.setParent(self._hidden_holder)
                plot.setVisible(name in visible)
        while (row := self._splitter.widget(0)) is not None:
            row.setParent(None)  # remove it immediately, so that the splitter has only the new rows
            row.deleteLater()
        for number, names in enumerate(rows):
            self._splitter.addWidget(self._make_row([self.plots[name] for name in names if name != self._enlarged]))
            self._splitter.setStretchFactor(number, 3 if number else 7)  # the first row is tall
        for name, next_name in pairwise(visible):
            QWidget.setTabOrder(self.plots[name], self.plots[next_name])
        self._set_heights()

    def _make_row(self, plots: list[LinePlot]) -> QWidget:
        """Create a row with `plots` of equal width."""
        holder = QWidget()
        holder.setLayout(hbox(*((plot, 1) for plot in plots), spacing=12))
        return holder

    def _set_heights(self) -> None:
        """Set the minimum heights of the plots.

        The first row gets `FIRST_FRACTION` of the window's height, or less if the second row would not be visible.
        """
        lowest = _CURVE_HEIGHT + theme.scale_pixels(_TEXT_HEIGHT)
        first = round(FIRST_FRACTION * self.window().height())
        if self._visible_height is not None and len(self._rows) > 1:
            first = max(lowest, min(first, self._visible_height - lowest - self._splitter.handleWidth()))
        for number, names in enumerate(self._rows):
            for name in names:
                self.plots[name].setMinimumHeight(lowest if number else first)
        # A splitter doesn't report by itself that it needs more space for the widgets in it.
        QTimer.singleShot(0, self._splitter, self._splitter.updateGeometry)

    def _create_enlarge_button(self, name: str, plot: LinePlot) -> QToolButton:
        """Create the button that emits `enlarge_requested` with `name`, the name of `plot`."""
        title, tip = tr("Enlarge {title}").format(title=plot.title), tr("Show this plot alone (Enter); Esc leads back")
        button = tool_button(icon=icons.icon("enlarge", "muted"), style="flat", name=title, tip=tip)
        button.setAutoRaise(True)
        button.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the focused plot handles Enter
        button.clicked.connect(lambda: self.enlarge_requested.emit(name))
        return button


class LargePlot(QWidget):
    """View of a single enlarged plot.

    Signals:
        closed(): the user wants to return to all plots.
    """

    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.leave = create_back_action(self, "leave_plot", tr("Back to all plots"))
        self.leave.on_trigger(self.closed.emit)
        self.back = bind(QPushButton(), self.leave, tr("Back to all plots"))
        self._layout = vbox((self.back, 0, Qt.AlignmentFlag.AlignLeft), spacing=6)
        self.setLayout(self._layout)

    def show_plot(self, plot: LinePlot) -> None:
        """Show `plot`, which belongs to the `PlotRows`, until it is put back there."""
        self._layout.addWidget(plot, 1)
        plot.show()
        plot.setFocus()


def _parse_choice(saved: str, names: list[str]) -> tuple[list[str], set[str]]:
    """Return the order of all plots and the selected ones. Plots that aren't in `saved` are appended and selected.

    `saved` contains the names of plots in order, with a "-" before those that aren't selected. `names` are the names of
    all plots.
    """
    saved_names = [name for name in saved.split() if name.lstrip("-") in names]
    order = list(dict.fromkeys(name.lstrip("-") for name in saved_names))
    hidden = {name[1:] for name in saved_names if name.startswith("-")}
    return order + [name for name in names if name not in order], set(names) - hidden


_NAME = Qt.ItemDataRole.UserRole


class PlotList(QListWidget):
    """List of check boxes that can be moved by dragging, or with Alt+Up and Alt+Down.

    Signals:
        chosen(list, set): names of all plots in order, and names of the checked ones.
    """

    chosen = Signal(list, set)

    def __init__(self, rows: PlotRows) -> None:
        super().__init__()
        self.setAccessibleName(tr("Plots shown"))
        self.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        for name in rows.order:
            item = QListWidgetItem(rows.plots[name].title, self)
            item.setData(_NAME, name)
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsDropEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            item.setCheckState(Qt.CheckState.Checked if name in rows.chosen else Qt.CheckState.Unchecked)
        self.setCurrentRow(0)
        self.setFixedHeight(self.count() * self.sizeHintForRow(0) + 2 * self.frameWidth() + 4)
        self.itemChanged.connect(lambda _item: self._emit_choice())
        self.model().rowsMoved.connect(lambda *_moved: self._emit_choice())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the current plot on Alt+Up and Alt+Down."""
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is not None and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            self._move(step)
        else:
            super().keyPressEvent(event)

    def _move(self, step: int) -> None:
        """Move the current plot by `step` rows, but not beyond the ends, and emit the new order."""
        row = self.currentRow()
        if 0 <= row + step < self.count():
            item = self.takeItem(row)
            self.insertItem(row + step, item)
            self.setCurrentItem(item)
            self._emit_choice()

    def _emit_choice(self) -> None:
        """Emit `chosen` with the current order and check marks."""
        items = [self.item(row) for row in range(self.count())]
        checked = {item.data(_NAME) for item in items if item.checkState() == Qt.CheckState.Checked}
        self.chosen.emit([item.data(_NAME) for item in items], checked)
