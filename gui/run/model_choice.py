"""Editors for a checkpoint and for devices, which all forms that use a model share."""

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
from gui.translation import tr
from gui.widgets.editors import ChoiceEditor, Editor
from gui.widgets.layouts import FlowLayout

_BEST = ("best", "best", "")
"""Choice (value, title, help) that is offered while a run has no checkpoint."""


class CheckpointEditor(ChoiceEditor):
    """Selection of a checkpoint of a run, with the best one first.

    Signals:
        refreshed(): the list of checkpoints and `has_checkpoint` have been updated.

    Attributes:
        has_checkpoint: True if the run has a checkpoint.
    """

    refreshed = Signal()

    def __init__(self) -> None:
        super().__init__([_BEST])
        self.has_checkpoint = False
        self._run: RunFolder | None = None

    def show_run(self, run: RunFolder) -> None:
        """List the checkpoints of `run` on a worker thread."""
        self._run = run
        self.refresh()

    def refresh(self) -> None:
        """Reload the list of checkpoints."""
        if self._run is not None:
            in_background(
                partial(checkpoints_of, self._run), self, partial(self._show_checkpoints, self._run), ignore_os_error
            )

    def _show_checkpoints(self, run: RunFolder, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Offer the checkpoints that were found for `run`, the best one first, unless another run is now shown.

        Emits `refreshed`.
        """
        if run is not self._run:
            return
        best_first = sorted(checkpoints, key=lambda checkpoint: checkpoint.name != BEST)
        choices = [
            (each.name, " · ".join(filter(None, (_checkpoint_title(each), each.text))), "") for each in best_first
        ]
        self.reset_choices(choices or [_BEST], self.value())
        self.has_checkpoint = bool(choices)
        self.refreshed.emit()


class DevicesEditor(QWidget):
    """Check boxes for this machine's GPUs and for the CPU. Checking the CPU unchecks the GPUs, and vice versa.

    Signals:
        edited(): the checked devices may have changed.
        rebuilt(): the boxes have been recreated, and are last in the tab order.

    Attributes:
        boxes: Check boxes by device.
    """

    edited = Signal()
    rebuilt = Signal()

    def __init__(self, activity: str) -> None:
        """Create the boxes. Their accessible names start with `activity`, such as "Evaluate"."""
        super().__init__()
        self._activity = activity
        self._run_devices: tuple[str, ...] = (CPU,)
        self._titles: dict[str, str] = {}
        self.boxes: dict[str, QCheckBox] = {}
        self._flow = FlowLayout(self, spacing=14)
        self._rebuild()

    def show_devices(self, devices: Sequence[str]) -> None:
        """Check the `devices` of a run that this machine has, or the CPU if it has none of them."""
        self._run_devices = tuple(devices) or (CPU,)
        self._rebuild()

    def set_gpus(self, titles: Mapping[str, str]) -> None:
        """Set the titles of this machine's GPUs, by UUID."""
        if titles != self._titles:
            self._titles = dict(titles)
            self._rebuild()

    def value(self) -> tuple[str, ...]:
        """Return the checked devices.

        If the run has several workers on the CPU, the CPU is repeated for each of them.
        """
        checked = [device for device, box in self.boxes.items() if box.isChecked()]
        worker_count = self._run_devices.count(CPU) or 1
        return (CPU,) * worker_count if checked == [CPU] else tuple(checked)

    def _rebuild(self) -> None:
        """Create a check box per device. Check the run's devices that this machine has, or else the CPU.

        Emits `rebuilt` and `edited`.
        """
        devices = [*self._titles, CPU]
        checked = [device for device in dict.fromkeys(self._run_devices) if device in devices] or [CPU]
        for box in self.boxes.values():
            self._flow.removeWidget(box)
            box.deleteLater()
        self.boxes = {}
        for device in devices:
            title = "CPU" if device == CPU else self._titles[device]
            self.boxes[device] = box = QCheckBox(title)
            box.setAccessibleName(tr("{activity} on {device}").format(activity=self._activity, device=title))
            box.setChecked(device in checked)
            box.toggled.connect(partial(self._on_toggled, device))
            self._flow.addWidget(box)
        self.updateGeometry()
        self.rebuilt.emit()
        self.edited.emit()

    def _on_toggled(self, device: str, is_checked: bool) -> None:
        """Uncheck the CPU if a GPU has been checked, or all GPUs if the CPU has been checked. Emit `edited`."""
        if is_checked:
            for other, box in self.boxes.items():
                if CPU in (device, other) and other != device:
                    box.setChecked(False)
        self.edited.emit()


class FormGrid(QGridLayout):
    """Form with a row for each (title, accessible name, editor). A row without title has only its editor."""

    def __init__(self, *rows: tuple[str, str, QWidget]) -> None:
        super().__init__()
        self.setHorizontalSpacing(12)
        self.setVerticalSpacing(8)
        self.setColumnStretch(1, 1)
        self._labels: dict[QWidget, QLabel] = {}
        for number, (title, name, editor) in enumerate(rows):
            self.addWidget(editor, number, 1)
            if not title:
                continue
            label = self._labels[editor] = QLabel(title)
            control: Any = editor.control if isinstance(editor, Editor) else editor
            label.setBuddy(control)
            if name:
                control.setAccessibleName(name)
            self.addWidget(label, number, 0, Qt.AlignmentFlag.AlignVCenter)

    def show_row(self, editor: QWidget, is_visible: bool) -> None:
        for widget in (editor, self._labels[editor]):
            widget.setVisible(is_visible)


def _checkpoint_title(checkpoint: Checkpoint) -> str:
    """Return the title of a checkpoint, as in "epoch 3" for an older one, or "best"."""
    older = OLDER_CHECKPOINT.fullmatch(checkpoint.name)
    return (
        tr("epoch {number}").format(number=older["epoch"]) if older is not None else checkpoint.name.removesuffix(".pt")
    )
