"""Summary and test of the notifications about runs.

Supervisors send these notifications, even while no window is open.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLabel, QPushButton, QSizePolicy, QWidget

from engine.contract.problems import Problem
from engine.runs.notices import KINDS, Notice, NoticeSent, NoticeSettings, load_notices
from engine.system import paths
from engine.system.format import listed
from gui.alerts.notifications import NoticeSender
from gui.format import localized, significant
from gui.translation import tr
from gui.widgets.buttons import push_button
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import vbox

_TITLE = tr("night shift has completed")
_TEXT = tr("Top-1 accuracy 94.1% (epoch 7 of 10); 1:02:03 in all.")


def make_sample_notice(settings: NoticeSettings) -> Notice:
    """Return an example of a notification, to be delivered according to `settings`."""
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
    return Notice(
        title=_TITLE,
        text=_TEXT,
        folder=str(paths.home()),
        desktop=settings.desktop,
        command=settings.command,
        variables=values,
    )


class RunNotifications(QWidget):
    """Summary of the settings for notifications about runs, and the result of a test notification.

    Attributes:
        settings: Button that opens the settings. The parent places it in its layout.
        test: Button that sends a test notification. The parent places it in its layout.
        delivery: Process that delivers the test notification.
    """

    def __init__(self) -> None:
        super().__init__()
        self.settings = push_button(tr("Settings…"), name=tr("Settings of the notifications about runs"))
        self.test = QPushButton(tr("Test"))
        self.test.setAccessibleName(tr("Test the notifications about runs"))
        self.test.setToolTip(tr("Send a test notification with made-up values"))
        self.delivery = NoticeSender(self)
        self.summary, self._result = QLabel(wordWrap=True), QLabel(wordWrap=True)
        self.summary.setObjectName("muted")
        self._settings_problems, self._test_problems = ProblemLabel(), ProblemLabel()
        for label in (self.summary, self._result):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setLayout(vbox(self.summary, self._settings_problems, self._result, self._test_problems, spacing=4))
        self._result.hide()
        self.test.clicked.connect(self._start_test)
        self.delivery.done.connect(self._show_sent)
        self.delivery.failed.connect(lambda message: self._show_result("", message))
        self._load()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._load()

    def result(self) -> str:
        """Return the text about the last test notification: its deliveries and problems."""
        return "\n".join(filter(None, (self._result.text(), self._test_problems.text())))

    def close_work(self) -> None:
        """End a running test when the window closes."""
        self.delivery.close()

    def _load(self) -> NoticeSettings:
        """Reload the notification settings, which other programs may have changed, and summarize them."""
        settings, problems = load_notices()
        self._settings_problems.show_problems(tuple(problems))
        self.summary.setText(describe_settings(settings))
        return settings

    def _start_test(self) -> None:
        """Send a test notification as configured, or report that nothing would be sent."""
        settings = self._load()
        if not settings.desktop and not settings.command.strip():
            self._show_result(tr("Nothing to test: turn on desktop notifications or set a command first."))
            return
        self.delivery.start(make_sample_notice(settings))
        self._show_result(tr("Sending…"))

    def _show_sent(self, sent: NoticeSent) -> None:
        self._show_result(
            "\n".join(describe_deliveries(sent)), *filter(None, (sent.desktop_problem, sent.command_problem))
        )

    def _show_result(self, text: str, *problems: str) -> None:
        """Show `text` and `problems` about a test notification. Enable the test button unless a test is running."""
        self._result.setText(text)
        self._result.setVisible(bool(text))
        self._test_problems.show_problems(tuple(Problem("", problem, "", "warning") for problem in problems))
        self.test.setEnabled(not self.delivery.running)


def describe_settings(settings: NoticeSettings) -> str:
    """Describe the events that cause notifications, and the channels that deliver them."""
    events = [kind.title for name, kind in KINDS.items() if getattr(settings, name)]
    channels = []
    if settings.desktop:
        channels.append(tr("on the desktop"))
    if settings.command:
        channels.append(tr("by a command"))
    if not events or not channels:
        return tr("Notifications about runs are off.")
    text = (
        tr("Notifies {channels}, in runs of at least {minutes} min: {named}.")
        if settings.least_minutes
        else tr("Notifies {channels}: {named}.")
    )
    return text.format(
        channels=listed(channels),
        minutes=significant(settings.least_minutes),
        named="; ".join(f"{title[:1].lower()}{title[1:]}" for title in events),
    )


def describe_deliveries(sent: NoticeSent) -> list[str]:
    """Return a sentence for each successful delivery of a notification."""
    lines = []
    if sent.desktop_by:
        lines.append(
            tr(
                "Sent a desktop notification ({desktop_by}). If nothing appears, check whether the desktop is set "
                "to “do not disturb”."
            ).format(desktop_by=sent.desktop_by)
        )
    if sent.command_code == 0:
        text = (
            tr("The command succeeded after {command_s} s. Output: {output}")
            if sent.command_output
            else tr("The command succeeded after {command_s} s.")
        )
        lines.append(text.format(command_s=localized(sent.command_s, 1), output=sent.command_output))
    return lines
