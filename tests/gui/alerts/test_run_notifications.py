"""What is to be told of runs, as it is set on the page of the alerts."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.runs.notices import KINDS, NoticeSettings, load_notices, save_notices, settings_file
from gui.alerts.run_notifications import RunNotices
from gui.alerts.view import AlertsView
from tests.gui.alerts.alert_time import Watched
from tests.gui.monitor.conftest import sampler_options as sampler_options  # noqa: PLC0414  (a fixture)
from tests.gui.monitor.conftest import watching as watching  # noqa: PLC0414  (a fixture)
from tests.gui.monitor.watching import Watching


@pytest.fixture
def view(styled: QApplication, tmp_path: Path, qtbot: QtBot) -> AlertsView:
    made = AlertsView(Watched(tmp_path).alerts)
    qtbot.addWidget(made)
    made.resize(620, 900)
    made.show()
    return made


@pytest.fixture
def notices(view: AlertsView) -> RunNotices:
    return view.runs


def kept() -> NoticeSettings:
    settings, problems = load_notices()
    assert problems == []
    return settings


def test_that_the_defaults_are_shown_and_not_written_down(notices: RunNotices) -> None:
    chosen = {kind: box.isChecked() for kind, box in notices.kinds.items()}
    assert chosen == {"ended": True, "failed": True, "stalled": True, "restarted": False}
    assert notices.desktop.isChecked()
    assert (notices.minutes.value(), notices.command.value()) == (1.0, "")
    assert not settings_file().exists()


def test_that_what_is_chosen_is_kept_at_once(notices: RunNotices, qtbot: QtBot) -> None:
    notices.kinds["restarted"].setFocus()
    qtbot.keyClick(notices.kinds["restarted"], Qt.Key.Key_Space)
    notices.desktop.click()
    assert kept() == NoticeSettings(restarted=True, desktop=False)


def test_that_what_is_typed_is_kept_once_it_is_entered(notices: RunNotices, qtbot: QtBot) -> None:
    qtbot.keyClicks(notices.command.line, "beep")
    assert not settings_file().exists()
    qtbot.keyClick(notices.command.line, Qt.Key.Key_Return)
    assert kept() == NoticeSettings(command="beep")
    notices.minutes.line.setText("0.5")
    qtbot.keyClick(notices.minutes.line, Qt.Key.Key_Return)
    assert kept() == NoticeSettings(command="beep", least_minutes=0.5)


@pytest.mark.parametrize("typed", ["soon", "-1", "nan", "10081", ""])
def test_that_a_time_that_is_none_is_told_and_nothing_is_kept(notices: RunNotices, qtbot: QtBot, typed: str) -> None:
    line = notices.minutes.line
    line.setText(typed)
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert not settings_file().exists()
    assert "Enter a number from 0 to 10,080." in line.accessibleDescription()
    assert not notices.test.isEnabled()
    line.setText("2")
    assert line.accessibleDescription() == ""
    assert notices.test.isEnabled()


def test_that_settings_written_elsewhere_are_shown_when_the_page_is(notices: RunNotices, view: AlertsView) -> None:
    view.hide()
    save_notices(NoticeSettings(ended=False, command="ring"))
    view.show()
    assert not notices.kinds["ended"].isChecked()
    assert notices.command.value() == "ring"


def test_that_a_wrong_file_is_told_and_the_rest_of_it_holds(notices: RunNotices, view: AlertsView) -> None:
    view.hide()
    settings_file().parent.mkdir(parents=True, exist_ok=True)
    settings_file().write_text("failed = 'no'\nended = false\n")
    view.show()
    assert "Write true or false." in notices._kept.text()
    assert not notices.kinds["ended"].isChecked()
    notices.kinds["ended"].click()
    assert kept() == NoticeSettings()
    assert notices._kept.text() == ""


def test_that_what_cannot_be_kept_is_told(notices: RunNotices) -> None:
    settings_file().parent.parent.mkdir(parents=True, exist_ok=True)
    settings_file().parent.write_text("not a folder")
    notices.kinds["ended"].click()
    assert "Could not save this setting: " in notices._kept.text()


def test_that_a_trial_runs_the_command_with_sample_values_and_shows_what_came_of_it(
    notices: RunNotices, qtbot: QtBot
) -> None:
    notices.desktop.click()
    notices.command.set_value('echo "$FOOTPLATE_NOTICE of $FOOTPLATE_NAME, $FOOTPLATE_BEST"')
    notices.test.click()
    assert (notices.result(), notices.test.isEnabled()) == ("Sending …", False)
    with qtbot.waitSignal(notices.trial.done):
        pass
    assert "The command succeeded after 0." in notices.result()
    assert "Output: ended of night shift, top1=0.941" in notices.result()
    qtbot.waitUntil(notices.test.isEnabled)


def test_that_a_trial_tells_of_a_command_that_fails_and_of_a_desktop_that_is_not_there(
    notices: RunNotices, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    notices.command.set_value("no-such-program-anywhere")
    with qtbot.waitSignal(notices.trial.done):
        notices.test.click()
    assert "No desktop notifications can be shown" in notices.result()
    assert "exited with code 127" in notices.result()
    notices.command.set_value("")
    notices.desktop.click()
    notices.test.click()
    assert "Nothing to test" in notices.result()
    assert not notices.trial.running


def test_that_closing_the_window_ends_a_trial(watching: Watching, qtbot: QtBot, tmp_path: Path) -> None:
    watching.page.show_view(4)
    view = watching.page.view
    assert isinstance(view, AlertsView)
    view.runs.command.set_value(f"sleep 600 & echo begun > {tmp_path}/begun; sleep 600")
    view.runs.test.click()
    qtbot.waitUntil((tmp_path / "begun").exists)
    watching.page.close_work()
    assert not view.runs.trial.running  # and that no process is left is looked at after every test


def test_that_all_of_it_has_a_name(notices: RunNotices) -> None:
    assert [box.text() for box in notices.kinds.values()] == [words.title for words in KINDS.values()]
    for widget in (notices.desktop, notices.minutes.control, notices.command.control, notices.test):
        assert widget.accessibleName()
