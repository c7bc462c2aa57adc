"""Notes on a run below its state: resumptions, restarts and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from PySide6.QtWidgets import QWidget

from engine.contract.events import RunStarted
from gui.format import clock, localised
from gui.sources.run_data import RunData, Warnings, attempt_words
from gui.sources.run_status import first_sentence
from gui.titles import devices_words
from gui.translation import tr
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import vbox

_MAX_WARNINGS = 3
"""Largest number of warnings shown; the log has all."""

_FIRST = ("out_of_memory", "step_skipped", "steps_passed_over")
"""Warnings about changes to the training itself, shown first; the newest of the others fill the rest."""


@dataclass(frozen=True)
class Note:
    """Line of the header."""

    kind: Literal["muted", "warning"]
    text: str


def notes(data: RunData) -> list[Note]:
    """Return all notes on a run."""
    found = [Note("muted", text) for text in (_resumed_text(data), _restarted_text(data)) if text]
    newest_first = reversed(data.warnings.values())
    shown = sorted(newest_first, key=lambda warnings: warnings.newest.code not in _FIRST)[:_MAX_WARNINGS]
    return found + [Note("warning", _warning_text(each)) for each in shown]


class NotesView(QWidget):
    """Lines with the notes on a run; hidden without any."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: list[Note] = []
        self._lines: list[ElidedLabel] = []
        self._layout = vbox(spacing=2)
        self.setLayout(self._layout)
        self.hide()

    def show_data(self, data: RunData) -> None:
        """Show the notes on a run."""
        found = notes(data)
        if found == self._shown:
            return
        self._shown = found
        while len(self._lines) < len(found):
            self._lines.append(ElidedLabel())
            self._layout.addWidget(self._lines[-1])
        for line, note in zip(self._lines, found, strict=False):
            line.setText(f"⚠ {note.text}" if note.kind == "warning" else note.text)
            line.setToolTip(note.text)
            line.setObjectName(note.kind)
            line.style().polish(line)
        for index, line in enumerate(self._lines):
            line.setVisible(index < len(found))
        self.setVisible(bool(found))


def _resumed_text(data: RunData) -> str:
    if data.executions < 2 or data.started is None:
        return ""
    times = "" if data.executions == 2 else f" {data.executions - 1} times, last"
    return tr("Resumed{times} at {time} on {started}").format(
        times=times, time=clock(data.started.time), started=_devices(data.started)
    )


def _restarted_text(data: RunData) -> str:
    if not data.restarts or data.restarting is not None:  # the status line already says it
        return ""
    newest = data.restarts[-1]
    often = "once" if len(data.restarts) == 1 else f"{len(data.restarts)} times, last"
    changed = f" (since then {attempt_words(newest)})" if newest.changes or newest.devices else ""
    return f"Restarted {often} at step {localised(newest.step or 0)}{changed}: {first_sentence(newest.cause)}"


def _warning_text(warnings: Warnings) -> str:
    more = f" ({warnings.count} times)" if warnings.count > 1 else ""
    return f"{warnings.newest.message.rstrip('.')}{more}"


def _devices(started: RunStarted) -> str:
    return devices_words(started.job.parallel.devices, {device.id: device.name for device in started.devices})
