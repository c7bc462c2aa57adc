"""Datasets whose labels the user has to see before the first training."""

from __future__ import annotations

import os

import msgspec
from PySide6.QtCore import QElapsedTimer
from PySide6.QtWidgets import QApplication

from engine.contract.dataset import DatasetReport
from engine.system.decode_errors import NOT_DECODED
from gui.sources.settings import Settings

_KEY = "labels_seen"
_REMEMBERED = 500


class LabelCheck:
    """Holds the first training back on a folder that was not recognized with certainty, once for each format.

    Datasets are remembered in the settings, if there are any.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._seen = _load(settings)
        self._pressed = QElapsedTimer()

    def holds_back(self, folder: str, report: DatasetReport | None) -> bool:
        """Return True if the labels are to be shown instead of starting; they count as seen then.

        Without examples there are none to show. Presses that follow within the time of a double click count as one.
        """
        if report is None or not report.format or report.certain or not report.examples:
            return False
        dataset = (os.path.abspath(os.path.expanduser(folder)), report.format)
        if dataset not in self._seen:
            self._remember(dataset)
            self._pressed.start()
            return True
        if self.is_pausing:
            self._pressed.start()
            return True
        return False

    @property
    def is_pausing(self) -> bool:
        """Return True shortly after the labels were shown."""
        return self._pressed.isValid() and self._pressed.elapsed() < QApplication.doubleClickInterval()

    def _remember(self, dataset: tuple[str, str]) -> None:
        self._seen = [*_load(self._settings), *self._seen]  # other windows may have added some
        self._seen = [*dict.fromkeys((*self._seen, dataset))][-_REMEMBERED:]
        if self._settings is not None:
            self._settings.set(_KEY, msgspec.json.encode(self._seen).decode())


def _load(settings: Settings | None) -> list[tuple[str, str]]:
    """Return the remembered datasets; none if they can't be read."""
    try:
        text = settings.text(_KEY, "[]") if settings is not None else "[]"
        return msgspec.json.decode(text, type=list[tuple[str, str]])
    except NOT_DECODED:
        return []
