"""Learning-rate finder page, which shows the loss while the learning rate rises."""

from __future__ import annotations

import math

import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QPen
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from engine.contract.advice import FinderRequest, RateFound
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.finders.page import FinderPage
from gui.format import significant
from gui.plots.themed import ThemedPlot
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import ProblemLabel, muted_label
from gui.widgets.layouts import hbox, vbox, with_layout

EMPTY = tr(
    "No learning rate found yet.\n\n"
    "Press the magnifying glass next to Learning rate in the form: a short training with a\nrising rate shows where "
    "the loss falls fastest. Nothing is saved."
)
STEP = 0.05
"""Decades that an arrow key moves the learning rate."""
HEADROOM = 1.3
"""Upper limit of the loss axis as a multiple of the first smoothed loss. Above it, training diverges."""

MARKS = {"suggestion": tr("Safe (minimum ÷ 10)"), "steepest": tr("Steepest"), "valley": tr("Valley")}


class RatePlot(ThemedPlot):
    """Plot of the losses in a `RateFound`. A click or the arrow keys move the line at the selected rate.

    Signals:
        chosen(): the user has selected a rate.
    """

    chosen = Signal()

    def __init__(self) -> None:
        super().__init__(tr("Loss over the learning rate"))
        self.setAccessibleDescription(tr("Left and Right choose a rate."))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumHeight(160)
        self.rate: float | None = None
        self._found: RateFound | None = None
        self.setLogMode(x=True)
        self.setLabel("bottom", tr("Learning rate"))
        self.setLabel("left", tr("Loss"))
        self.scene().sigMouseClicked.connect(self._on_clicked)
        self.recolor()

    def show_found(self, found: RateFound) -> None:
        """Draw the losses of a trial, and select the suggested rate if there is one."""
        self._found = found
        self.rate = found.suggestion
        self.recolor()

    def choose(self, rate: float) -> None:
        """Select `rate`, limited to the range of the curve."""
        if self._found is None or not self._found.points:
            return
        points = self._found.points
        self.rate = min(max(rate, points[0].rate), points[-1].rate)
        self.recolor()
        self.chosen.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -STEP, Qt.Key.Key_Right: STEP}.get(Qt.Key(event.key()))
        if step is None or self.rate is None:
            super().keyPressEvent(event)
        else:
            self.choose(self.rate * 10**step)

    def _on_clicked(self, event: pg.GraphicsScene.mouseEvents.MouseClickEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.choose(10 ** self.getViewBox().mapSceneToView(event.scenePos()).x())

    def draw(self) -> None:
        """Draw loss and smoothed loss over the logarithmic rate, the suggestions (dashed) and the chosen rate."""
        colors = theme.colors()
        if self._found is None or not self._found.points:
            return
        points = self._found.points
        rates = [point.rate for point in points]
        self.plot(rates, [point.loss for point in points], pen=pg.mkPen(colors.border, width=1))
        self.plot(rates, [point.smoothed for point in points], pen=pg.mkPen(colors.accent, width=2.5))
        for name in MARKS:
            self._draw_rate(getattr(self._found, name), pg.mkPen(colors.muted, style=Qt.PenStyle.DashLine))
        self._draw_rate(self.rate, pg.mkPen(colors.text, width=1.5))
        # The small summands prevent empty ranges.
        lowest = min(point.smoothed for point in points)
        top = max(points[0].smoothed * HEADROOM, lowest + 1e-6)
        self.setYRange(min(lowest, *(point.loss for point in points)), top, padding=0.02)
        self.setXRange(math.log10(rates[0]), math.log10(rates[-1]) + 1e-6, padding=0.02)

    def _draw_rate(self, rate: float | None, pen: QPen) -> None:
        """Draw a vertical line at a learning rate, or nothing for None."""
        if rate is not None:
            self.addItem(pg.InfiniteLine(math.log10(rate), angle=90, pen=pen))


class RatePage(FinderPage):
    """Finder page for the learning rate."""

    def __init__(self) -> None:
        super().__init__("learning_rate", tr("Finding the learning rate"), EMPTY)

    def build_request(self, job: Job) -> FinderRequest:
        return FinderRequest("rate", job)

    def create_results(self) -> QWidget:
        """Create the page for the result: reason or problem, plot, legend and a button per suggestion."""
        self.plot = RatePlot()
        self.plot.chosen.connect(self.show_choice)
        self.why = QLabel(wordWrap=True)
        self.no_result = ProblemLabel()
        self.legend = muted_label(
            tr(
                "Thick: smoothed loss. Thin: loss of each batch. Dashed: the suggestions below. Click to choose any rate."
            ),
            word_wrap=True,
        )
        self.marks = {name: QPushButton(title) for name, title in MARKS.items()}
        for name, button in self.marks.items():
            button.clicked.connect(lambda _checked=False, name=name: self._choose_mark(name))
        row = hbox(*self.marks.values(), 1)
        return with_layout(vbox(self.why, self.no_result, (self.plot, 1), self.legend, row, spacing=6))

    def show_found(self, found: RateFound) -> None:
        """Plot the losses, and offer the suggested rates, or show why there are none."""
        self.plot.show_found(found)
        has_suggestion = found.suggestion is not None
        self.why.setText(found.why)
        self.why.setVisible(has_suggestion)
        self.no_result.show_problems(() if has_suggestion else (Problem("", found.why, found.remedy, "warning"),))
        for name, button in self.marks.items():
            rate = getattr(found, name)
            button.setVisible(rate is not None)
            if rate is not None:
                button.setText(f"{MARKS[name]} {significant(rate, 2)}")

    def chosen(self) -> float | None:
        """Return the selected learning rate with two significant digits, or None if there is none."""
        rate = self.plot.rate
        return float(f"{rate:.2g}") if rate is not None else None

    def _choose_mark(self, name: str) -> None:
        """Select the suggestion with this name in `MARKS`, whose button is visible only if there is one."""
        self.plot.choose(getattr(self.found, name))
