"""Looking at newly installed plug-ins, in a process of its own (``python -m engine.catalogue --plugins``)."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from engine.contract.catalogue import load_catalogue, supplement_file
from gui.sources.child import ChildModule


class PluginReader(ChildModule):
    """Has the catalogue's supplement written where there is none of the installed plug-ins.

    Signals: done() - the catalogue has what plug-ins add.
    """

    done = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("engine.catalogue", "Reading the installed plug-ins", 1 << 20, parent)

    def start(self) -> None:
        """Begins where there is something to look at."""
        file = supplement_file()
        if file is not None and not file.exists():
            self._start(["--plugins"])

    def _take(self, line: bytes) -> None:
        """What a plug-in prints while it is imported is no answer."""

    def _answer(self) -> bool:
        file = supplement_file()
        if file is None or not file.exists():
            return False
        load_catalogue.cache_clear()
        self.done.emit()
        return True
