"""Welcome page: findings about the machine, and three ways to start."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QGridLayout, QLabel, QPushButton, QSizePolicy, QWidget

from engine.checks.machine_findings import (
    Finding,
    disk_findings,
    driver_findings,
    gpu_findings,
    memory_findings,
    training_findings,
)
from engine.checks.torch_support import find_installed_torch
from engine.contract.devices import Snapshot
from gui.format import capitalize
from gui.sources.background import in_background, reraise
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import IconLabel, WrappingLabel, caption, heading_label, muted_label
from gui.widgets.layouts import scroll_column, vbox, with_layout

_WIDTH = 720
"""Maximum width of a column. All sizes in this module are pixels at a text size of 100%."""
_TWO_COLUMNS_FROM = 1000
_CHOICE_GAP = 14
_STACKED_BELOW = 520
"""Width of a column below which the text about a button is placed below the button."""
_BUTTON_HEIGHT = 38
_SAMPLE = tr("A part of Fashion-MNIST, ten classes of small images.")
_OPEN = tr("Your own folder in any supported format. You can also drop it on the window.")
_NOT_AVAILABLE = tr("Not available. The panel Devices gives the reason and the remedy.")
_CHECKING = tr("Checking this machine…")


class WelcomePage(QWidget):
    """Page that is shown until there is a run.

    Signals:
        sample_requested(bool): the user wants to train on the sample dataset, on GPUs if True, otherwise on the CPU.
        folder_requested(): the user wants to choose a dataset folder.
        monitor_requested(): the user wants to see the Monitor page.
    """

    sample_requested = Signal(bool)
    folder_requested = Signal()
    monitor_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._shown_facts: tuple[Any, ...] = ()  # driver and GPU facts that the findings on screen are based on
        self._machine_findings: list[Finding] = []
        self._disk_findings: list[Finding] | None = None  # None until they are requested
        self.rows: list[FindingRow] = []
        title = caption(tr("Welcome to Footplate"), "welcome")
        description = muted_label(tr("Train vision models on this machine and monitor its devices."), word_wrap=True)
        self.sample = QPushButton(tr("Train the sample"))
        self.sample.setObjectName("primary")
        self.sample.clicked.connect(lambda: self.sample_requested.emit(self.has_usable_gpu))
        self.open = push_button(tr("Open a folder…"), self.folder_requested)
        self.watch = push_button(tr("Monitor the devices"), self.monitor_requested)
        self._choices = QGridLayout()
        self._choice_rows = self._describe_buttons()
        layout = vbox(title, description, spacing=6)
        layout.addSpacing(16)
        layout.addLayout(self._choices)
        layout.addStretch(1)
        self._halves = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._halves.setSpacing(28)
        self._halves.setContentsMargins(0, 0, 0, 0)
        self._halves.addWidget(with_layout(layout), 1)
        self._halves.addWidget(self._create_findings_card(), 1, Qt.AlignmentFlag.AlignTop)
        self._column = with_layout(vbox(2, self._halves, 3, margins=(28, 24, 28, 24)))
        self.setLayout(vbox(scroll_column(self._column)))
        theme.notifier.changed.connect(self._arrange)
        self._arrange()

    @property
    def has_usable_gpu(self) -> bool:
        """True if the machine has a GPU that can be used for training."""
        return any(finding.topic == "Training" and finding.grade == "fine" for finding in self._machine_findings)

    def set_machine(self, snapshot: Snapshot) -> None:
        """Receive a snapshot of the machine. Update the findings if its driver or GPUs have changed."""
        facts = (snapshot.nvml, [(gpu.uuid, gpu.lost, gpu.mig_enabled, gpu.compute_mode) for gpu in snapshot.gpus])
        if facts == self._shown_facts or snapshot.nvml.status == "not_answering":
            return
        self._shown_facts = facts
        gpu_and_driver_findings = [*driver_findings(snapshot.nvml), *gpu_findings(snapshot)]
        for index, finding in enumerate(gpu_and_driver_findings):
            if finding.text == snapshot.nvml.message:  # the devices panel, next to this page, shows it in full
                gpu_and_driver_findings[index] = msgspec.structs.replace(finding, text=_NOT_AVAILABLE)
        self._machine_findings = [
            *gpu_and_driver_findings,
            *training_findings(snapshot, find_installed_torch(), os.environ),
            *memory_findings(snapshot.cpu),
        ]
        note = "" if self.has_usable_gpu else tr("It takes a minute or two on the CPU.")
        self.about_sample.setText(f"{_SAMPLE} {note}".strip())
        self._show_findings()

    def showEvent(self, event: QShowEvent) -> None:
        """Start to examine the disk when the page is first shown."""
        super().showEvent(event)
        if self._disk_findings is None:
            self._disk_findings = []
            in_background(lambda: list(disk_findings()), self, self._on_disk_examined, reraise)

    def _on_disk_examined(self, findings: list[Finding]) -> None:
        self._disk_findings = findings
        self._show_findings()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Use one or two columns, and place texts next to their buttons or below, depending on the width."""
        is_wide = self.width() >= theme.scale_pixels(_TWO_COLUMNS_FROM)
        direction = QBoxLayout.Direction.LeftToRight if is_wide else QBoxLayout.Direction.TopToBottom
        self._halves.setDirection(direction)
        self._column.setMaximumWidth(theme.scale_pixels(_WIDTH) * (2 if is_wide else 1))
        is_stacked = self.width() < theme.scale_pixels(_STACKED_BELOW)
        middle = Qt.AlignmentFlag.AlignVCenter
        for number, (button, description) in enumerate(self._choice_rows):
            row = 2 * number
            self._choices.addWidget(button, row, 0)
            if is_stacked:
                self._choices.addWidget(description, row + 1, 0, 1, 2, middle)
            else:
                self._choices.addWidget(description, row, 1, middle)
            self._choices.setRowMinimumHeight(row, 0 if is_stacked else theme.scale_pixels(_BUTTON_HEIGHT))
            description.setContentsMargins(0, 0, 0, _CHOICE_GAP if is_stacked else 0)

    def _describe_buttons(self) -> list[tuple[QPushButton, QLabel]]:
        """Add explanations to the buttons with which the user can start. Return each button with its label."""
        self._choices.setHorizontalSpacing(14)
        self._choices.setVerticalSpacing(5)
        self._choices.setColumnStretch(1, 1)
        self.about_sample = QLabel(_SAMPLE)
        about_watch = QLabel(tr("Load, memory, temperature, power and processes, live and for the last 24 hours."))
        choices = [(self.sample, self.about_sample), (self.open, QLabel(_OPEN)), (self.watch, about_watch)]
        for button, description in choices:
            description.setWordWrap(True)
            description.setBuddy(button)
            button.setAutoDefault(True)  # Enter presses it, as in a dialog
            button.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
            button.setAccessibleDescription(description.text())
        return choices

    def _create_findings_card(self) -> QFrame:
        """Create the card that lists the findings about this machine."""
        card = styled(QFrame(), "card")
        heading = heading_label(tr("This machine"))
        self._checking_label = muted_label(_CHECKING)
        self._list = vbox(heading, self._checking_label, spacing=9, margins=(16, 12, 16, 14))
        card.setLayout(self._list)
        return card

    def _show_findings(self) -> None:
        """List the findings, errors first, once the machine is known."""
        if not self._machine_findings:
            return
        self._checking_label.hide()
        for row in self.rows:
            self._list.removeWidget(row)
            row.deleteLater()
        findings = [*self._machine_findings, *(self._disk_findings or ())]
        if any(finding.topic == "Training" and finding.grade == "cpu_only" for finding in findings):
            # The driver works, but a green mark would suggest that training uses the GPU.
            findings = [
                msgspec.structs.replace(finding, grade="limited") if finding.topic == "Driver" else finding
                for finding in findings
            ]
        findings.sort(key=lambda finding: finding.grade not in ("broken", "cpu_only"))
        self.rows = [FindingRow(finding) for finding in findings]
        for row in self.rows:
            self._list.addWidget(row)


_TOPIC_WIDTH = 84


class FindingRow(QWidget):
    """Row with an icon, topic, finding and remedy, and a button that copies the remedy's command."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        topic = heading_label(finding.topic)
        theme.scale_with_text(topic.setMinimumWidth, _TOPIC_WIDTH)
        text = _make_sentence(finding.text)
        if finding.remedy:
            text = f"{text} {finding.remedy.removesuffix(finding.command).rstrip()}"
        self.text = WrappingLabel(text)
        self.text.setAccessibleName(str(finding))
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy = QPushButton(tr("Copy the command"))
        self.copy.setAccessibleDescription(finding.command)
        self.copy.setToolTip(finding.command)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(finding.command))
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(2, 1)
        top = Qt.AlignmentFlag.AlignTop
        grid.addWidget(_create_icon(finding), 0, 0, top)
        grid.addWidget(topic, 0, 1, top)
        grid.addWidget(self.text, 0, 2, top)
        if finding.command:
            command = styled(QLabel(_add_break_points(finding.command), wordWrap=True), "muted", name=finding.command)
            grid.addWidget(command, 1, 2, top)
            grid.addWidget(self.copy, 2, 2, Qt.AlignmentFlag.AlignLeft)


def _create_icon(finding: Finding) -> IconLabel:
    """Create the icon for a finding. A limitation is a warning only if it has a remedy."""
    if finding.grade == "fine":
        return IconLabel("ok", "ok", tr("Fine"))
    if finding.grade != "limited":
        return IconLabel("error", "error", tr("Wrong"))
    if finding.remedy:
        return IconLabel("warning", "warning", tr("Note"))
    return IconLabel("info", "accent", tr("Note"))


def _make_sentence(text: str) -> str:
    """Return `text` with its first letter in upper case, unless it starts with the name of the package torch."""
    return text if text.startswith("torch ") else capitalize(text)


def _add_break_points(command: str) -> str:
    """Insert break points into the long paths of a command for display, but not after hyphens."""
    return command.replace("/", "/\u200b").replace("-", "\u2011")
