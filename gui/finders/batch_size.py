"""Batch-size finder page, which shows memory use and speed for each size that was tried."""

from __future__ import annotations

import math

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QTableWidgetItem, QWidget

from engine.contract.advice import BatchFound, BatchTrial, FinderRequest
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.finders.page import FinderPage
from gui.format import localized, significant, size_of
from gui.plots.themed import ThemedPlot
from gui.style import theme
from gui.translation import tr
from gui.widgets.column_model import LEFT, RIGHT, create_text_table, select_row
from gui.widgets.labels import ProblemLabel, muted_label
from gui.widgets.layouts import vbox, with_layout

EMPTY = tr(
    "No batch size found yet.\n\n"
    "Press the magnifying glass next to Batch size in the form: a few steps at each of several\nsizes show the largest "
    "that fits and the smallest that is fast enough."
)
HEAD = (tr("Batch size"), tr("Memory"), "Images/s", tr("Note"))
_NUMBERS = 3
"""Number of columns with numbers, which come first."""
_COLUMN_WIDTH = 150
ADAPTIVE = ("adam", "adamw", "nadam", "radam", "rmsprop", "adagrad")
"""Optimizers whose learning rate usually scales with the square root of the batch size."""


class BatchPage(FinderPage):
    """Finder page for the batch size."""

    def __init__(self) -> None:
        super().__init__("batch_size", tr("Finding the batch size"), EMPTY)

    def build_request(self, job: Job) -> FinderRequest:
        return FinderRequest("batch", job)

    def create_results(self) -> QWidget:
        """Create the page for the result: its explanation or a problem, table, plot and the scaled learning rate."""
        self.why = QLabel(wordWrap=True)
        self.no_result = ProblemLabel()
        self.table = create_text_table(tr("Tested batch sizes"), HEAD)
        for column, title in enumerate(HEAD[:_NUMBERS]):
            item = QTableWidgetItem(title)
            item.setTextAlignment(RIGHT)
            self.table.setHorizontalHeaderItem(column, item)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.itemSelectionChanged.connect(self.show_choice)
        self.plot = ThemedPlot(tr("Speed over the batch size"))
        self.plot.setMinimumHeight(140)
        self.plot.setLogMode(x=True)
        self.plot.setLabel("bottom", tr("Batch size"))
        self.plot.setLabel("left", tr("Images/s"))
        self.plot.set_drawing(self._draw)
        self.rate = muted_label(word_wrap=True)
        return with_layout(vbox(self.why, self.no_result, self.table, (self.plot, 1), self.rate, spacing=6))

    def show_found(self, found: BatchFound) -> None:
        """Show the tested batch sizes, of which only those that fit can be chosen. Select the recommended one."""
        has_size = found.largest is not None
        self.why.setText(found.why)
        self.why.setVisible(has_size)
        self.no_result.show_problems(() if has_size else (Problem("", found.why, found.remedy, "warning"),))
        self.table.setRowCount(len(found.trials))
        for row, trial in enumerate(found.trials):
            for column, text in enumerate(_format_cells(trial, found)):
                item = QTableWidgetItem(text)
                item.setTextAlignment(RIGHT if column < _NUMBERS else LEFT)
                if not trial.fits:
                    item.setFlags(Qt.ItemFlag.NoItemFlags)
                self.table.setItem(row, column, item)
            if trial.size == found.knee:  # the recommended size
                select_row(self.table, row)
        for column in range(_NUMBERS):
            self.table.setColumnWidth(column, theme.scale_pixels(_COLUMN_WIDTH))
        head, rows = self.table.horizontalHeader().sizeHint().height(), self.table.verticalHeader().length()
        self.table.setMaximumHeight(head + rows + 2 * self.table.frameWidth() + 2)
        self.plot.redraw()

    def chosen(self) -> int | None:
        """Return the selected batch size, or None if none is selected."""
        rows = self.table.selectionModel().selectedRows()
        return self.found.trials[rows[0].row()].size if rows and self.found is not None else None

    def show_choice(self) -> None:
        """Show the selected batch size on the Use button, and how the learning rate would scale with it."""
        super().show_choice()
        job, size = self._tried_job, self.chosen()
        text = ""
        if job and size:
            text = describe_scaled_rate(job.optimizer.name, job.optimizer.learning_rate, job.training.batch_size, size)
        self.rate.setText(text)

    def _draw(self) -> None:
        """Plot the speed of the sizes that fit over a logarithmic axis. Fewer than two sizes hide the plot."""
        color = theme.colors().accent
        fitting = [trial for trial in self.found.trials if trial.fits] if self.found is not None else []
        self.plot.setVisible(len(fitting) > 1)
        self.plot.plot(
            [trial.size for trial in fitting],
            [trial.images_per_second or math.nan for trial in fitting],
            pen=pg.mkPen(color, width=2),
            symbol="o",
            symbolSize=7,
            symbolBrush=color,
            symbolPen=None,
        )
        # Ticks at powers of two, because pyqtgraph's own ticks overlap here.
        sizes = [2**power for power in range(21) if fitting and fitting[0].size <= 2**power <= fitting[-1].size]
        self.plot.getAxis("bottom").setTicks([[(math.log10(size), localized(size)) for size in sizes]])
        self.plot.setYRange(0, max((trial.images_per_second or 0 for trial in fitting), default=1), padding=0.05)


def describe_scaled_rate(optimizer: str, rate: float, previous_size: int, size: int) -> str:
    """Describe how the learning rate usually scales from batch size `previous_size` to `size`.

    Returns "" if they are equal.
    """
    if size == previous_size:
        return ""
    scales_with_root = optimizer in ADAPTIVE
    ratio = size / previous_size
    scaled = rate * (math.sqrt(ratio) if scales_with_root else ratio)
    rule = tr("with the square root of the batch size") if scales_with_root else tr("linearly with the batch size")
    return tr(
        "The learning rate usually scales {how}: {rate} at batch size {before} would become {scaled}. It "
        "stays unchanged unless you change it."
    ).format(how=rule, rate=significant(rate, 2), before=localized(previous_size), scaled=significant(scaled, 2))


def _format_cells(trial: BatchTrial, found: BatchFound) -> tuple[str, ...]:
    """Return the cells of a tested batch size: size, memory, speed and marks.

    The marks are "fast enough" for the size that `found` names as its knee, above which the speed hardly rises, and
    "largest" for the largest size that fits.
    """
    if not trial.fits:
        return localized(trial.size), tr("doesn't fit"), "–", ""
    marks = []
    if trial.size == found.knee:
        marks.append(tr("fast enough"))
    if trial.size == found.largest:
        marks.append("largest")
    memory = size_of(trial.memory_bytes, trial.limit_bytes)
    return localized(trial.size), memory, localized(trial.images_per_second or 0), ", ".join(marks)
