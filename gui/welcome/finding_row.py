"""Row of one finding about the machine."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QWidget

from engine.checks.machine_findings import Finding
from gui.translation import tr
from gui.widgets.labels import IconLabel

_TOPIC_WIDTH = 84


class FindingRow(QWidget):
    """Icon, topic, finding and remedy, with a button that copies the remedy's command."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        topic = QLabel(finding.topic)
        topic.setObjectName("heading")
        topic.setMinimumWidth(_TOPIC_WIDTH)
        self.text = QLabel(_sentence(finding.text), wordWrap=True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.text.setAccessibleName(str(finding))
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
        grid.addWidget(_icon(finding), 0, 0, top)
        grid.addWidget(topic, 0, 1, top)
        grid.addWidget(self.text, 0, 2, top)
        if finding.remedy:
            remedy = finding.remedy.removesuffix(finding.command).rstrip()
            self.text.setText(f"{self.text.text()} {remedy}")
        if finding.command:
            command = QLabel(_breakable(finding.command), wordWrap=True)
            command.setObjectName("muted")
            command.setAccessibleName(finding.command)
            grid.addWidget(command, 1, 2, top)
            grid.addWidget(self.copy, 2, 2, Qt.AlignmentFlag.AlignLeft)


def _icon(finding: Finding) -> IconLabel:
    if finding.grade == "fine":
        return IconLabel("ok", "ok", tr("Fine"))
    if finding.grade == "limited":
        return (
            IconLabel("warning", "warning", tr("Note")) if finding.remedy else IconLabel("info", "accent", tr("Note"))
        )
    return IconLabel("error", "error", tr("Wrong"))


def _sentence(text: str) -> str:
    return text if text.startswith("torch ") else text[:1].upper() + text[1:]


def _breakable(command: str) -> str:
    """Return `command` for display, with line breaks within long paths but not after hyphens."""
    return command.replace("/", "/\u200b").replace("-", "\u2011")
