"""The foot of the form: the button that trains, what stands in its way, and who is on the devices before it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from engine.contract.problems import Problem
from gui.widgets.icon_label import IconLabel
from gui.widgets.problem_label import ProblemLabel

_TIPS = {
    "Train": "Starts the training (Ctrl+Return)",
    "Resume": "Goes on with the run, with these changes (Ctrl+Return)",
    "Train further": "Goes on with the run, for more epochs (Ctrl+Return)",
}


class SubmitBar(QWidget):
    """Signals: at_once_wanted() - the job is to start beside the runs that are on its devices."""

    at_once_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.reason = ProblemLabel()
        self.ahead = QLabel(wordWrap=True)
        self.ahead.setTextFormat(Qt.TextFormat.PlainText)
        self.ahead.setObjectName("muted")
        self.ahead.setAccessibleName("When the run starts")
        self.ahead.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.at_once = QToolButton()
        self.at_once.setText("Start at once")
        self.at_once.setAccessibleName("Start at once")
        self.at_once.setToolTip("Starts beside the runs that are on the devices; all of them get slower")
        self.at_once.clicked.connect(self.at_once_wanted)
        self.train = QPushButton("Train")
        self.train.setObjectName("primary")
        self.copy = QPushButton("Copy as command")
        self.copy.setAccessibleName("Copy as command")
        self.copy.setToolTip("Puts the footplate command for this job on the clipboard")
        self._ahead_place = QWidget()
        self._focus_due = False
        self._lay_out()
        self.show_ahead("", False)
        self.show_action("Train")

    def show_action(self, action: str) -> None:
        """`action` is what the button says."""
        self.train.setText(action)
        self.train.setAccessibleName(action)

    def show_ahead(self, text: str, can_start_at_once: bool) -> None:
        """Says who is on the devices; nothing where `text` is empty."""
        self.ahead.setText(text)
        self.ahead.setAccessibleDescription(text)
        self._ahead_place.setVisible(bool(text))
        self.at_once.setVisible(can_start_at_once)

    def show_ready(self, why_not: str, problems: tuple[Problem, ...]) -> None:
        """Switches the button off where there is a reason; `problems` are told above it."""
        self._enable(not why_not)
        self.train.setToolTip(why_not or _TIPS.get(self.train.text(), ""))
        self.train.setAccessibleDescription(why_not)
        self.reason.show_problems(problems)

    def focus_train(self) -> None:
        """Puts the keyboard on the button, at once or as soon as it is on."""
        self._focus_due = not self.train.isEnabled()
        (self.copy if self._focus_due else self.train).setFocus()

    def _lay_out(self) -> None:
        line = QHBoxLayout(self._ahead_place)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(6)
        line.addWidget(IconLabel("clock", "muted", "In line"), 0, Qt.AlignmentFlag.AlignTop)
        line.addWidget(self.ahead, 1)
        line.addWidget(self.at_once, 0, Qt.AlignmentFlag.AlignTop)
        buttons = QHBoxLayout()
        buttons.addWidget(self.train, 1)
        buttons.addWidget(self.copy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 8, 14, 12)
        layout.setSpacing(6)
        layout.addWidget(self.reason)
        layout.addWidget(self._ahead_place)
        layout.addLayout(buttons)

    def _enable(self, on: bool) -> None:
        """Qt moves the keyboard on from buttons that are switched off; it comes back unless somebody has moved it."""
        window = self.window()  # whose focus widget is known before the window itself is active, too
        if window.focusWidget() in (self.train, self.at_once) and not on:
            self._focus_due = True
        self.train.setEnabled(on)
        self.at_once.setEnabled(on)
        if on and self._focus_due:
            self._focus_due = False
            if window.focusWidget() in (self.copy, None):
                self.train.setFocus()
