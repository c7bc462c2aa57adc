"""Settings of the notifications about runs, which the runs' supervisors send even when no window is open."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QGridLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from engine.contract.problems import Problem
from engine.runs.notices import (
    COMMAND_S,
    KINDS,
    SENDER,
    VARIABLES,
    Notice,
    NoticeKind,
    NoticeSent,
    NoticeSettings,
    load_notices,
    save_notices,
)
from engine.system import paths
from gui.format import localised
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.widgets.editors import FloatEditor, TextEditor
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.problem_label import ProblemLabel

_MINUTES_WIDTH = 70
_MOST_MINUTES = 10_080
_MOST_COMMAND = 4096

_TITLE = "night shift has completed"
_TEXT = "Top-1 accuracy 94.1 % (epoch 7 of 10); 1:02:03 in all."


def sample(settings: NoticeSettings) -> Notice:
    """A notice of a run that never was, to be sent as `settings` say."""
    values = {
        "FOOTPLATE_NOTICE": "ended",
        "FOOTPLATE_TITLE": _TITLE,
        "FOOTPLATE_TEXT": _TEXT,
        "FOOTPLATE_RUN": "20260102-030405-resnet18-beef",
        "FOOTPLATE_NAME": "night shift",
        "FOOTPLATE_FOLDER": str(paths.home()),
        "FOOTPLATE_OUTCOME": "completed",
        "FOOTPLATE_CAUSE": "",
        "FOOTPLATE_BEST": "top1=0.941",
        "FOOTPLATE_SECONDS": "3723",
    }
    folder, command = str(paths.home()), settings.command
    return Notice(title=_TITLE, text=_TEXT, folder=folder, desktop=settings.desktop, command=command, variables=values)


class NotificationTest(JsonLinesProcess):
    """Delivery of one notification as a supervisor would do it. Its result is a NoticeSent."""

    def __init__(self, parent: QObject | None = None) -> None:
        decode = msgspec.json.Decoder(NoticeSent).decode
        super().__init__(SENDER, "Sending the notification", decode, Answer, parent, cleans_up=True)

    def start(self, notice: Notice) -> None:
        """Deliver `notice`."""
        self.run(stdin=msgspec.json.encode(notice))


class RunNotices(QWidget):
    """The settings of the notices of runs. Each change is kept at once; what is typed, once it is entered or left.

    Attributes: heading - the section's title and its button, to be placed above it; trial - what the button starts.
    """

    def __init__(self, folder: Path | None = None, parent: QWidget | None = None) -> None:
        """`folder` is where the settings are kept, Footplate's home by default."""
        super().__init__(parent)
        self._folder = folder
        self._settings, problems = load_notices(folder)
        self.kinds: dict[NoticeKind, QCheckBox] = {}
        self.desktop = QCheckBox("Desktop notification")
        self.desktop.setAccessibleName("Desktop notification for runs")
        self.minutes = FloatEditor()
        self.command = TextEditor('curl -d "$FOOTPLATE_TITLE: $FOOTPLATE_TEXT" ntfy.sh/my-topic')
        self.test = QPushButton("Test")
        self.test.setAccessibleName("Test the notices of runs")
        self.test.setToolTip("Sends a test notification with made-up values")
        self.trial = NotificationTest(self)
        self._kept = ProblemLabel()
        self._wrong = {"least_minutes": ProblemLabel(), "command": ProblemLabel()}
        self._result = QLabel(wordWrap=True)
        self._failed = ProblemLabel()
        self._lay_out()
        self._connect()
        self._show()
        self._kept.show_problems(tuple(problems))

    def showEvent(self, event: QShowEvent) -> None:
        """Reads the settings anew: the file may have been written by hand, or by another window."""
        super().showEvent(event)
        settings, problems = load_notices(self._folder)
        self._kept.show_problems(tuple(problems))
        if settings != self._settings:
            self._settings = settings
            self._show()

    def result(self) -> str:
        """The result of the last test."""
        return "\n".join(filter(None, (self._result.text(), self._failed.text())))

    def close_work(self) -> None:
        """Ends a trial that is under way, for the end of the window."""
        self.trial.close()

    # Making it

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(3)
        layout.addWidget(self._kept)
        layout.addLayout(self._rows_of_kinds())
        grid = QGridLayout()
        grid.setContentsMargins(0, 4, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(2, 1)
        self.minutes.setFixedWidth(_MINUTES_WIDTH)
        self.minutes.control.setAccessibleName("Notices of runs of at least, in minutes")
        self.command.control.setAccessibleName("Command for notices of runs")
        self.command.control.setToolTip("\n".join(f"{name}: {meaning}" for name, meaning in VARIABLES.items()))
        about = QLabel(
            f"The system's shell runs it in the run's folder, for at most {COMMAND_S:.0f} s, with the message in "
            f"{', '.join(list(VARIABLES)[1:3])} and others (see the tool tip).",
            wordWrap=True,
        )
        for row, caption, editor in ((0, "Only runs of at least", self.minutes), (3, "Command", self.command)):
            label = QLabel(caption)
            label.setBuddy(editor.control)
            grid.addWidget(label, row, 0)
            grid.addWidget(editor, row, 1, 1, 1 if editor is self.minutes else 2)
        grid.addWidget(_muted(QLabel("min, including time in the queue", wordWrap=True)), 0, 2)
        grid.addWidget(self._wrong["least_minutes"], 1, 1, 1, 2)
        grid.addWidget(self.desktop, 2, 1, 1, 2)
        grid.addWidget(self._wrong["command"], 4, 1, 1, 2)
        grid.addWidget(_muted(about), 5, 1, 1, 2)
        layout.addLayout(grid)
        for before, after in pairwise((self.minutes.control, self.desktop, self.command.control)):
            QWidget.setTabOrder(before, after)
        for label in (about, self._result):
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self._result.setTextFormat(Qt.TextFormat.PlainText)
        self._result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._result.hide()
        layout.addSpacing(4)
        layout.addWidget(self._result)
        layout.addWidget(self._failed)

    def _rows_of_kinds(self) -> QGridLayout:
        rows = QGridLayout()
        rows.setHorizontalSpacing(6)
        rows.setVerticalSpacing(3)
        rows.setColumnStretch(1, 1)
        for number, (kind, words) in enumerate(KINDS.items()):
            box = self.kinds[kind] = QCheckBox(words.title)
            box.setAccessibleDescription(words.meaning)
            meaning = ElidedLabel(words.meaning)
            for widget in (box, meaning):
                widget.setToolTip(words.meaning)
            rows.addWidget(box, number, 0)
            rows.addWidget(_muted(meaning), number, 1)
        return rows

    def _connect(self) -> None:
        for box in (*self.kinds.values(), self.desktop):
            box.toggled.connect(self._commit)
        for editor in (self.minutes, self.command):
            editor.edited.connect(self._check)
            editor.line.editingFinished.connect(self._commit)
        self.test.clicked.connect(self._try)
        self.trial.done.connect(self._tried)
        self.trial.failed.connect(lambda why: self._say("", why))

    # What it shows and keeps

    def _show(self) -> None:
        now = self._settings
        for box, on in (*((box, getattr(now, kind)) for kind, box in self.kinds.items()), (self.desktop, now.desktop)):
            box.blockSignals(True)
            box.setChecked(on)
            box.blockSignals(False)
        self.minutes.set_value(now.least_minutes)
        self.command.set_value(now.command)
        self._check()

    def _check(self) -> bool:
        """Says what is wrong with what is typed; whether nothing is."""
        minutes = self.minutes.value()
        good = isinstance(minutes, float) and math.isfinite(minutes) and 0 <= minutes <= _MOST_MINUTES
        wrong = [] if good else [Problem("least_minutes", "Invalid duration.", "Enter a number from 0 to 10,080.")]
        if len(self.command.value()) > _MOST_COMMAND:
            wrong.append(
                Problem("command", "The command is too long.", "Put it into a script and enter the script's name.")
            )
        for field, editor in (("least_minutes", self.minutes), ("command", self.command)):
            found = tuple(problem for problem in wrong if problem.field == field)
            self._wrong[field].show_problems(found)
            editor.control.setProperty("severity", "error" if found else "")
            editor.control.setAccessibleDescription(" ".join(map(str, found)))
            editor.control.style().unpolish(editor.control)
            editor.control.style().polish(editor.control)
        self.test.setEnabled(not wrong and not self.trial.running)
        return not wrong

    def _written(self) -> NoticeSettings:
        """The settings as the fields have them, with which nothing is wrong."""
        chosen = {kind: box.isChecked() for kind, box in self.kinds.items()}
        return NoticeSettings(
            **chosen,
            desktop=self.desktop.isChecked(),
            least_minutes=float(self.minutes.value()),
            command=self.command.value(),
        )

    def _commit(self) -> None:
        if not self._check():
            return
        settings = self._written()
        if settings == self._settings:
            return
        self._settings = settings
        try:
            save_notices(settings, self._folder)
        except OSError as error:
            why = f"Could not save this setting: {error.strerror} ({error.filename})."
            self._kept.show_problems((Problem("", why, "Runs use the previously saved settings.", "warning"),))
        else:
            self._kept.show_problems(())

    # Trying it

    def _try(self) -> None:
        self._commit()
        settings = self._settings
        if not settings.desktop and not settings.command.strip():
            self._say("Nothing to test: turn on the desktop notification or enter a command first.")
            return
        self.trial.start(sample(settings))
        self.test.setEnabled(False)
        self._say("Sending …")

    def _tried(self, sent: NoticeSent) -> None:
        self._say("\n".join(what_came(sent)), *filter(None, (sent.desktop_problem, sent.command_problem)))

    def _say(self, words: str, *problems: str) -> None:
        self._result.setText(words)
        self._result.setVisible(bool(words))
        self._failed.show_problems(tuple(Problem("", problem, "", "warning") for problem in problems))
        self._check()


def what_came(sent: NoticeSent) -> list[str]:
    """The successful deliveries of a notice, one line each."""
    lines = []
    if sent.desktop_by:
        lines.append(
            f"Sent a desktop notification ({sent.desktop_by}). If nothing appears, check whether the desktop is set "
            "to “do not disturb”."
        )
    if sent.command_code == 0:
        said = f" Output: {sent.said}" if sent.said else ""
        lines.append(f"The command succeeded after {localised(sent.command_s, 1)} s.{said}")
    return lines


def _muted(label: QLabel) -> QLabel:
    label.setObjectName("muted")
    return label
