"""Export of the visible readings and images."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.gpus.quantities import QUANTITIES
from gui.sources.devices.history import DeviceHistory
from gui.sources.export import ExportError, export_csv, export_png
from gui.translation import tr
from gui.widgets.file_dialogs import choose_target


class Saving(QObject):
    """Dialogs and messages of the export.

    Signals:
        message(str, str): the result, and "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, history: DeviceHistory, page: QWidget) -> None:
        super().__init__(page)
        self._history = history
        self._page = page

    def ask_csv(
        self, keys: Sequence[str], low: float, high: float, quantities: Sequence[str] | None = None
    ) -> QFileDialog:
        """Ask for a file and write the readings from `low` to `high` (seconds since the epoch)."""
        chosen = [quantity.id for quantity in QUANTITIES] if quantities is None else list(quantities)
        return self._ask(tr("Save numbers"), "csv", lambda path: self.save_csv(path, keys, chosen, low, high))

    def ask_png(self, widget: QWidget) -> QFileDialog:
        """Ask for a file and write an image of `widget`."""
        return self._ask(tr("Save image"), "png", lambda path: self.save_png(path, widget))

    def save_csv(self, path: Path, keys: Sequence[str], quantities: Sequence[str], low: float, high: float) -> None:
        export_csv(
            path,
            self._history,
            [key for key in keys if key in self._history.titles],
            quantities,
            low=low,
            high=high,
            parent=self,
            done=lambda written: self.message.emit(
                tr("The displayed values were saved to {written}.").format(written=written), "info"
            ),
            failed=lambda why: self.message.emit(why, "warning"),
        )

    def save_png(self, path: Path, widget: QWidget) -> None:
        try:
            export_png(path, widget.grab())
        except ExportError as error:
            self.message.emit(str(error), "warning")
        else:
            self.message.emit(tr("The image was saved to {path}.").format(path=path), "info")

    def _ask(self, title: str, suffix: str, chosen: Callable[[Path], None]) -> QFileDialog:
        name = f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}.{suffix}"
        return choose_target(self._page, title, name, chosen)
