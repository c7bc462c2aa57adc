"""A run's plots one below another: which are shown, in what order, and one of them alone and large."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSplitter, QToolButton, QVBoxLayout, QWidget

from gui.actions import back_action, bind
from gui.plots.plot import LinePlot
from gui.sources.settings import Settings
from gui.style import icons

FIRST_SHARE = 0.46
"""Of the window's height, what the first plot takes at least."""
_LEAST = 150
"""Pixels of height that each other plot takes at least."""
_KEPT_UNDER = "run_plots"


class PlotRows(QWidget):
    """The first of the plots is wide and tall, the others stand two in a row.

    Signals: enlarge_wanted(str) - the plot of that name is to be shown alone.

    Attributes: order - the names of all plots; chosen - those that the user wants to see.
    """

    enlarge_wanted = Signal(str)

    def __init__(self, plots: Mapping[str, LinePlot], settings: Settings) -> None:
        super().__init__()
        self.plots = dict(plots)
        self._settings = settings
        self.order, self.chosen = _remembered(settings.text(_KEPT_UNDER), list(plots))
        self._empty: set[str] = set()
        self._lent = ""
        self._rows: list[list[str]] = []
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._unshown = QWidget(self)
        self._unshown.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._splitter)
        for name, plot in self.plots.items():
            plot.setParent(self._unshown)
            plot.add_button(self._enlarge_button(name, plot))
        self._arrange()

    def choose(self, order: list[str], chosen: set[str]) -> None:
        """Shows the plots in `chosen`, in that order, now and in windows to come."""
        self.order, self.chosen = order, chosen
        self._settings.set(_KEPT_UNDER, " ".join(name if name in chosen else f"-{name}" for name in order))
        self._arrange()

    def set_empty(self, name: str, empty: bool) -> None:
        """A plot that this run has nothing for takes no room."""
        if empty != (name in self._empty):
            self._empty ^= {name}
            self._arrange()

    def lend(self, name: str) -> LinePlot:
        """Gives a plot away, until `take_back`."""
        self._lent = name
        return self.plots[name]

    def take_back(self) -> None:
        lent, self._lent = self._lent, ""
        self._rows = []
        self._arrange()
        if lent:
            self.plots[lent].setFocus()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        focused = next((name for name, plot in self.plots.items() if plot.hasFocus()), "")
        if focused and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.enlarge_wanted.emit(focused)
        else:
            super().keyPressEvent(event)

    def _arrange(self) -> None:
        shown = [name for name in self.order if name in self.chosen and name not in self._empty]
        rows = [shown[:1], *(shown[at : at + 2] for at in range(1, len(shown), 2))] if shown else []
        if rows == self._rows:
            return
        self._rows = rows
        for name, plot in self.plots.items():
            if name != self._lent:
                plot.setParent(self._unshown)
                plot.setVisible(name in shown)
        while (row := self._splitter.widget(0)) is not None:
            row.setParent(None)  # at once, so that the splitter has only the new rows
            row.deleteLater()
        for number, names in enumerate(rows):
            self._splitter.addWidget(self._row([self.plots[name] for name in names if name != self._lent]))
            self._splitter.setStretchFactor(number, 3 if number else 7)
        for one, other in pairwise(shown):
            QWidget.setTabOrder(self.plots[one], self.plots[other])
        self._fit()

    def _row(self, plots: list[LinePlot]) -> QWidget:
        holder = QWidget()
        layout = QHBoxLayout(holder)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        for plot in plots:
            layout.addWidget(plot, 1)
        return holder

    def _fit(self) -> None:
        """Gives the first plot its share of the window."""
        for number, names in enumerate(self._rows):
            for name in names:
                self.plots[name].setMinimumHeight(_LEAST if number else round(FIRST_SHARE * self.window().height()))

    def _enlarge_button(self, name: str, plot: LinePlot) -> QToolButton:
        button = QToolButton()
        button.setObjectName("flat")
        button.setIcon(icons.icon("enlarge", "muted"))
        button.setAutoRaise(True)
        button.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # Enter does it from the plot itself
        button.setAccessibleName(f"Enlarge {plot.title}")
        button.setToolTip("Shows this plot alone (Enter); Esc leads back")
        button.clicked.connect(lambda: self.enlarge_wanted.emit(name))
        return button


class LargePlot(QWidget):
    """One plot, alone.

    Signals: closed() - back to all of them.
    """

    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.leave = back_action(self, "leave_plot", "Back to all plots")
        self.leave.on_trigger(self.closed.emit)
        self.back = bind(QPushButton(), self.leave, "Back to all plots")
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.addWidget(self.back, 0, Qt.AlignmentFlag.AlignLeft)

    def show_plot(self, plot: LinePlot) -> None:
        self._layout.addWidget(plot, 1)
        plot.show()
        plot.setFocus()


def _remembered(kept: str, names: list[str]) -> tuple[list[str], set[str]]:
    """The order and the choice as they were kept; plots that are new since come last, and are shown."""
    words = [word for word in kept.split() if word.lstrip("-") in names]
    order = list(dict.fromkeys(word.lstrip("-") for word in words))
    hidden = {word[1:] for word in words if word.startswith("-")}
    return order + [name for name in names if name not in order], set(names) - hidden
