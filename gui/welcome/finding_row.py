"""One thing that was found of the machine, and what to do about it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QWidget

from engine.checks.machine_findings import Finding
from gui.widgets.icon_label import IconLabel

_TOPIC_WIDTH = 84


class FindingRow(QWidget):
    """An icon, the topic and what was found, and below it the remedy, whose command a button copies."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        topic = QLabel(finding.topic)
        topic.setObjectName("heading")
        topic.setMinimumWidth(_TOPIC_WIDTH)
        # A label with a name of its own tells its text to nobody else.
        self.text = QLabel(_sentence(finding.text), wordWrap=True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.text.setAccessibleName(str(finding))
        self.copy = QPushButton("Copy the command")
        self.copy.setAccessibleDescription(finding.command)
        self.copy.setToolTip(finding.command)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(finding.command))
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(2, 1)
        top = Qt.AlignmentFlag.AlignTop
        grid.addWidget(_icon(finding), 0, 0, top)
        grid.addWidget(topic, 0, 1, top)
        grid.addWidget(self.text, 0, 2, top)
        if finding.remedy:
            said = finding.remedy.removesuffix(finding.command).rstrip()
            self.text.setText(f"{self.text.text()} {said}")
        if finding.command:
            command = QLabel(_breakable(finding.command), wordWrap=True)
            command.setObjectName("muted")
            command.setAccessibleName(finding.command)
            grid.addWidget(command, 1, 2, top)
            grid.addWidget(self.copy, 2, 2, Qt.AlignmentFlag.AlignLeft)


def _icon(finding: Finding) -> IconLabel:
    if finding.grade == "fine":
        return IconLabel("ok", "ok", "Fine")
    if finding.grade == "limited":
        return IconLabel("warning", "warning", "Note") if finding.remedy else IconLabel("info", "accent", "Note")
    return IconLabel("error", "error", "Wrong")


def _sentence(text: str) -> str:
    return text if text.startswith("torch ") else text[:1].upper() + text[1:]


def _breakable(command: str) -> str:
    """`command` to be looked at, with line breaks within long paths and none after the hyphens of flags."""
    return command.replace("/", "/\u200b").replace("-", "\u2011")
