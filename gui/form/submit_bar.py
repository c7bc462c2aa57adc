"""The bar below the form: the button that trains, what stands in its way, and who is on the devices before it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from engine.contract.problems import Problem
from gui.actions import Actions, bind
from gui.widgets.icon_label import IconLabel
from gui.widgets.problem_label import ProblemLabel

_TIPS = {
    "Train": "Starts the training",
    "Resume": "Resumes the run with these changes",
    "Train further": "Trains the run for more epochs",
}


class SubmitBar(QWidget):
    """Has the actions that start the job on screen offer what can be done now."""

    def __init__(self, actions: Actions, steps: QWidget) -> None:
        """`steps` stand above all else."""
        super().__init__()
        self._actions = actions
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.reason = ProblemLabel()
        self.ahead = QLabel(wordWrap=True)
        self.ahead.setTextFormat(Qt.TextFormat.PlainText)
        self.ahead.setObjectName("muted")
        self.ahead.setAccessibleName("When the run starts")
        self.ahead.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.at_once = bind(QToolButton(), actions.start_at_once)
        self.train = bind(QPushButton(), actions.train)
        self.train.setObjectName("primary")
        self.copy = bind(QPushButton(), actions.copy_command)
        self._queue_row = QWidget()
        self._focus_due = False
        self._lay_out(steps)
        self.show_ahead("", False)
        self.show_action("Train")

    def show_action(self, action: str) -> None:
        """`action` is what the button says."""
        self._actions.train.become(action, _TIPS[action])

    def show_ahead(self, text: str, can_start_at_once: bool) -> None:
        """Says who is on the devices; nothing where `text` is empty."""
        self.ahead.setText(text)
        self.ahead.setAccessibleDescription(text)
        self._queue_row.setVisible(bool(text))
        self.at_once.setVisible(can_start_at_once)

    def show_ready(self, disabled_reason: str, problems: tuple[Problem, ...]) -> None:
        """Switches the button off where there is a reason; `problems` are told above it."""
        self._enable(disabled_reason)
        self.reason.show_problems(problems)

    def focus_train(self) -> None:
        """Puts the keyboard on the button, at once or as soon as it is on."""
        self._focus_due = not self._actions.train.ready
        (self.copy if self._focus_due else self.train).setFocus()

    def _lay_out(self, steps: QWidget) -> None:
        line = QHBoxLayout(self._queue_row)
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
        layout.addWidget(steps)
        layout.addWidget(self.reason)
        layout.addWidget(self._queue_row)
        layout.addLayout(buttons)

    def _enable(self, disabled_reason: str) -> None:
        """Qt moves the keyboard on from buttons that are switched off; it comes back unless somebody has moved it."""
        window = self.window()  # whose focus widget is known before the window itself is active, too
        if window.focusWidget() in (self.train, self.at_once) and disabled_reason:
            self._focus_due = True
        self._actions.train.allow(disabled_reason)
        self._actions.start_at_once.allow(disabled_reason)
        if self._focus_due and not disabled_reason:
            self._focus_due = False
            if window.focusWidget() in (self.copy, None):
                self.train.setFocus()
