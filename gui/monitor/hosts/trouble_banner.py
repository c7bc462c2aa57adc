"""Why no numbers come from a host, at the top of the page."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QWidget

from engine.contract.devices import Snapshot
from gui.widgets.icon_label import IconLabel


def trouble_words(latest: Mapping[str, Snapshot], troubles: Mapping[str, str]) -> list[str]:
    """A sentence for each host that is in trouble: its sampler's or connection's, else NVML's. That a host has not
    answered for the first time yet is no trouble."""
    names = sorted({*latest, *troubles}, key=lambda name: (name != "", name))
    found = []
    for name in names:
        snapshot = latest.get(name)
        said = troubles.get(name) or (_nvml_trouble(snapshot) if snapshot is not None else "")
        if said:
            found.append(f"{name}: {said}" if name and name not in said else said)
    return found


def _nvml_trouble(snapshot: Snapshot) -> str:
    still_looking = snapshot.nvml.status == "not_answering" and not snapshot.gpus
    return "" if snapshot.nvml.status == "ok" or still_looking else snapshot.nvml.message


class TroubleBanner(QFrame):
    """Hidden while all hosts tell what they should."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._text = QLabel(wordWrap=True)
        self._text.setAccessibleName("Troubles")
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(10, 4, 10, 4)
        layout.setSpacing(8)
        layout.addWidget(IconLabel("warning", "warning", "Warning"), 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._text, 1)
        self.hide()

    def text(self) -> str:
        return self._text.text()

    def show_troubles(self, sentences: list[str]) -> None:
        self._text.setText("\n".join(sentences))
        self.setVisible(bool(sentences))
