"""Which of a run's models is used, and on which devices: the rows that all forms share which work with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QWidget

from engine.contract.devices import CPU
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from gui.sources.background import ignore_os_error, in_background
from gui.sources.checkpoints import BEST, Checkpoint, checkpoints_of
from gui.widgets.editors import ChoiceEditor, Editor
from gui.widgets.flow_layout import FlowLayout

_BEST = ("best", "best", "")


class CheckpointEditor(ChoiceEditor):
    """One of the run's checkpoints, the best one first.

    Signals: looked() - it is known whether there is any. Attributes: found - whether there was at the last look.
    """

    looked = Signal()

    def __init__(self) -> None:
        super().__init__([_BEST])
        self.found = False
        self._run: RunFolder | None = None

    def show_run(self, run: RunFolder) -> None:
        """Offers the checkpoints of `run`."""
        self._run = run
        self.look()

    def look(self) -> None:
        """Looks again which there are."""
        if self._run is not None:
            in_background(partial(checkpoints_of, self._run), self, partial(self._offer, self._run), ignore_os_error)

    def _offer(self, run: RunFolder, found: tuple[Checkpoint, ...]) -> None:
        if run is not self._run:
            return
        before = self.value()
        choices = [(each.name, " · ".join(filter(None, (_title(each), each.words))), "") for each in found]
        choices.sort(key=lambda choice: choice[0] != BEST)
        self.box.clear()
        self.set_choices(choices or [_BEST])
        self.box.setCurrentIndex(max(0, self.box.findData(before)))
        self.found = bool(choices)
        self.looked.emit()


class DevicesEditor(QWidget):
    """A box for each GPU of this machine and one for the CPU, which works alone. Those of the run are checked at first.

    Signals: edited() - others may be checked; remade() - the boxes are others, which come last in the order of Tab.
    Attributes: boxes - the boxes by their devices.
    """

    edited = Signal()
    remade = Signal()

    def __init__(self, what: str) -> None:
        """`what` is done on them, as in "Evaluate"; it begins the boxes' accessible names."""
        super().__init__()
        self._what = what
        self._own: tuple[str, ...] = (CPU,)
        self._names: dict[str, str] = {}
        self.boxes: dict[str, QCheckBox] = {}
        self._flow = FlowLayout(self, spacing=14)
        self._show()

    def show_own(self, devices: Sequence[str]) -> None:
        """Checks those of `devices`, which a run had, that are here; the CPU where none is."""
        self._own = tuple(devices) or (CPU,)
        self._show()

    def set_gpus(self, names: Mapping[str, str]) -> None:
        """What this machine's GPUs are called, by their UUIDs."""
        if names != self._names:
            self._names = dict(names)
            self._show()

    def value(self) -> tuple[str, ...]:
        """Those that are checked, the CPU with as many workers as the run had."""
        chosen = [device for device, box in self.boxes.items() if box.isChecked()]
        workers = self._own.count(CPU) or 1
        return tuple(each for device in chosen for each in [device] * (workers if device == CPU else 1))

    def _show(self) -> None:
        known = [*self._names, CPU]
        own = [device for device in dict.fromkeys(self._own) if device in known] or [CPU]
        for box in self.boxes.values():
            self._flow.removeWidget(box)
            box.deleteLater()
        self.boxes = {}
        for device in known:
            title = "CPU" if device == CPU else self._names[device]
            self.boxes[device] = box = QCheckBox(title)
            box.setAccessibleName(f"{self._what} on {title}")
            box.setChecked(device in own)
            box.toggled.connect(partial(self._chose, device))
            self._flow.addWidget(box)
        self.updateGeometry()
        self.remade.emit()
        self.edited.emit()

    def _chose(self, device: str, on: bool) -> None:
        if on:
            for other, box in self.boxes.items():
                if CPU in (device, other) and other != device:
                    box.setChecked(False)
        self.edited.emit()


def form_grid(*rows: tuple[str, str, QWidget]) -> QGridLayout:
    """A form: a row for each (title, accessible name, editor). An editor without a title takes the second column
    alone.
    """
    grid = QGridLayout()
    grid.setHorizontalSpacing(12)
    grid.setVerticalSpacing(8)
    grid.setColumnStretch(1, 1)
    for number, (title, name, editor) in enumerate(rows):
        grid.addWidget(editor, number, 1)
        if not title:
            continue
        label = QLabel(title)
        control: Any = editor.control if isinstance(editor, Editor) else editor
        label.setBuddy(control)
        if name:
            control.setAccessibleName(name)
        grid.addWidget(label, number, 0, Qt.AlignmentFlag.AlignTop if editor.layout() is None else _MIDDLE)
    return grid


_MIDDLE = Qt.AlignmentFlag.AlignVCenter


def _title(checkpoint: Checkpoint) -> str:
    older = OLDER_CHECKPOINT.fullmatch(checkpoint.name)
    return f"epoch {older['epoch']}" if older is not None else checkpoint.name.removesuffix(".pt")
