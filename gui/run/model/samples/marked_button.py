"""Button that exports the marked samples as a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton

from gui.format import counted, localised
from gui.run.model.samples.marks import MarkedCsv, marks_of
from gui.sources.background import in_background
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.export import write_csv
from gui.translation import tr
from gui.widgets.file_dialogs import choose_target, timestamped


class MarkedButton(QPushButton):
    """Button that exports the marked samples as CSV.

    Signals:
        message(str, str): outcome; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._opened: OpenedEvaluation | None = None
        self._rows: tuple[int, ...] = ()
        self._suggested: Mapping[int, str] = {}
        self.setAccessibleName(tr("Save marked samples"))
        self.clicked.connect(self._choose_file)

    def show_marked(self, opened: OpenedEvaluation, rows: set[int], suggestions: Mapping[int, str]) -> None:
        """Show the number of marked rows; `suggestions` holds labels for some of them."""
        self._opened, self._rows, self._suggested = opened, tuple(sorted(rows)), suggestions
        self.setText(f"Save {localised(len(rows))} marked …" if rows else tr("Save marked …"))
        self.setEnabled(bool(rows))
        self.setToolTip(tr("Saves the marked samples as CSV") if rows else tr("Mark samples with Space first"))

    def save_list(self, path: Path) -> None:
        """Write the marked samples as CSV."""
        if self._opened is not None:
            table = MarkedCsv(marks_of(self._opened, self._rows, self._suggested))
            in_background(
                partial(write_csv, path, table),
                self,
                lambda written: self.message.emit(
                    tr("{counted} saved to {written}.").format(
                        counted=counted(len(table.marks), "marked sample"), written=written
                    ),
                    "info",
                ),
                lambda error: self.message.emit(str(error), "warning"),
            )

    def _choose_file(self) -> None:
        choose_target(self, tr("Save the marked samples"), timestamped("marked.csv"), self.save_list)
