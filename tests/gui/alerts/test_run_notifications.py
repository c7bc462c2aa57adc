"""Desktop notifications about runs: their summary, and the notification that tests the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.runs.notices import NoticeSettings, save_notices, settings_file
from gui.alerts.run_notifications import RunNotifications, make_sample_notice
from gui.alerts.view import AlertsView
from gui.widgets.labels import ProblemLabel
from tests.gui.alerts.conftest import AlertsRecorder
from tests.gui.monitor.conftest import sampler_options as sampler_options  # noqa: PLC0414  (a fixture)
from tests.gui.monitor.conftest import watching as watching  # noqa: PLC0414  (a fixture)
from tests.gui.monitor.watching import Watching
from tests.support.widgets import ShowWidget, join_visible_texts


@pytest.fixture
def view(show_widget: ShowWidget, watched: AlertsRecorder) -> AlertsView:
    return show_widget(AlertsView(watched.alerts), 620, 900)


@pytest.fixture
def notifications(view: AlertsView) -> RunNotifications:
    return view.runs


def test_settings_changed_elsewhere_are_refreshed_and_stay(view: AlertsView, notifications: RunNotifications) -> None:
    view.hide()
    save_notices(NoticeSettings(ended=False, command="ring"))
    view.show()
    assert "by a command" in notifications.summary.text()
    before = settings_file().read_bytes()
    notifications.test.click()
    assert settings_file().read_bytes() == before
    notifications.close_work()


def test_settings_button_leads_to_the_settings(view: AlertsView, qtbot: QtBot) -> None:
    with qtbot.waitSignal(view.settings_requested) as requested:
        view.runs.settings.click()
    assert requested.args == ["ended"]


def test_trial_runs_command_with_sample_values(notifications: RunNotifications, qtbot: QtBot) -> None:
    settings = NoticeSettings(desktop=False, command='echo "$FOOTPLATE_NOTICE of $FOOTPLATE_NAME, $FOOTPLATE_BEST"')
    sample = make_sample_notice(settings)
    assert (sample.title, sample.text) == (sample.variables["FOOTPLATE_TITLE"], sample.variables["FOOTPLATE_TEXT"])
    assert not sample.desktop
    save_notices(settings)
    with qtbot.waitSignal(notifications.delivery.done):
        notifications.test.click()
        assert not notifications.test.isEnabled()
    assert "ended of night shift, top1=0.941" in join_visible_texts(notifications)
    qtbot.waitUntil(notifications.test.isEnabled)


def test_trial_reports_failed_command_and_missing_desktop(
    notifications: RunNotifications, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    save_notices(NoticeSettings(command="no-such-program-anywhere"))
    with qtbot.waitSignal(notifications.delivery.done):
        notifications.test.click()
    assert "desktop" in notifications.result()
    assert "127" in notifications.result()
    notifications.delivery.failed.emit("It was killed.")
    assert [label.text() for label in notifications.findChildren(ProblemLabel)] == ["", "It was killed."]
    for settings in (NoticeSettings(desktop=False), NoticeSettings(desktop=False, command=" ")):
        save_notices(settings)
        notifications.test.click()
        assert not notifications.delivery.running
        assert notifications.result().startswith("Nothing to test")
    settings_file().write_text("ended = 3")
    notifications.hide()
    notifications.show()
    assert "ended" in join_visible_texts(notifications)


def test_closing_the_window_ends_a_trial(watching: Watching, qtbot: QtBot, tmp_path: Path) -> None:
    command = f"sleep 600 & echo begun > {tmp_path}/begun; sleep 600"
    save_notices(NoticeSettings(desktop=False, command=command))
    watching.page.show_view(4)
    view = watching.page.view
    assert isinstance(view, AlertsView)
    view.runs.test.click()
    qtbot.waitUntil((tmp_path / "begun").exists)
    watching.page.close_work()
    assert not view.runs.delivery.running  # each test ends with a check for processes that are left
