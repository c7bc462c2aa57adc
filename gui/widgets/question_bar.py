"""A line that asks something where it is asked about, and then says what came of it: nothing modal."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from gui.widgets.icon_label import IconLabel


class QuestionBar(QFrame):
    """An icon, a text and two buttons, `yes` and `no`, whose clicks the owner connects. Hidden until it says something."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """`name` is what screen readers call it."""
        super().__init__(parent)
        self.setObjectName("card")
        self.setAccessibleName(name)
        self._mark = IconLabel()
        self.text = QLabel(wordWrap=True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.yes = QPushButton("Yes")  # a control has a name before it is first asked, too
        self.no = QPushButton("No")
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 10, 8)
        row.setSpacing(10)
        row.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.text, 1)
        row.addWidget(self.yes)
        row.addWidget(self.no)
        self.hide()

    def say(self, icon: str, text: str, yes: str, no: str) -> None:
        """Shows itself with `text`; `yes` and `no` are what the buttons say, and an empty `yes` leaves that one out."""
        self._mark.show_icon(icon, icon if icon in ("warning", "ok") else "accent", "")
        self.text.setText(text)
        if yes:
            self.yes.setText(yes)
        self.yes.setVisible(bool(yes))
        self.no.setText(no)
        for button in (self.yes, self.no):
            button.setAccessibleDescription(text)  # read out as the focus arrives
        self.show()
