"""Preferences: declaration, validation, storage, effect without a restart, and reset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from engine.runs.notices import load_notices
from engine.system import cache_limit, paths
from gui.format import size
from gui.preferences.declared import BY_KEY, SETTINGS, list_sections
from gui.preferences.dialog import PreferencesDialog
from gui.preferences.store import Preferences
from gui.sources.background import Background
from gui.sources.settings import Settings
from gui.style import theme
from tests.support.widgets import HoldCalls, OpenWindow, ShowWidget, join_visible_texts

BAD = {
    "text_percent": 500, "theme": "pink", "cache_gib": -1, "history_hours": "long", "runs_every_s": float("nan"),
    "sample_every_s": 0, "runs_folder": "runs", "cache_folder": "cache", "least_minutes": 1e9,
    "command": "x" * 5000, "default_devices": "some", "memory_unit": "", "default_recipe": "none such",
}  # fmt: skip


@pytest.fixture
def preferences(qtbot: QtBot) -> Preferences:
    return Preferences(Settings())


def test_settings_reject_invalid_values(preferences: Preferences) -> None:
    assert len(BY_KEY) == len(SETTINGS)
    changed: list[str] = []
    preferences.changed.connect(changed.append)
    for setting in SETTINGS:
        assert preferences.is_standard(setting.key), setting.key
        assert setting.find_problem(setting.standard) == "", setting.key
        if setting.kind in ("number", "whole"):
            steps = (setting.minimum - 0.01, setting.minimum, setting.maximum, setting.maximum + 0.01)
            assert [bool(setting.find_problem(value)) for value in steps] == [True, False, False, True], setting.key
        assert setting.kind == "switch" or setting.key in BAD
    for key, value in BAD.items():
        assert preferences.set(key, value).endswith("."), key  # type: ignore[arg-type]
    assert BY_KEY["command"].find_problem("x" * 4096) == ""
    assert BY_KEY["command"].find_problem("x" * 4097)
    assert changed == []
    assert not (paths.home() / "window.json").exists()


def test_settings_are_saved_for_the_engine(preferences: Preferences, tmp_path: Path) -> None:
    values = {"theme": "dark", "text_percent": 120, "restarted": True, "command": "true", "least_minutes": 5}
    values |= {"runs_folder": str(tmp_path / "big" / "runs"), "cache_folder": str(tmp_path / "cache")}
    changed: list[str] = []
    preferences.changed.connect(changed.append)
    for key, value in values.items():
        assert preferences.set(key, value) == ""  # type: ignore[arg-type]
    assert preferences.set("theme", "dark") == ""
    assert changed == [*values], "the theme was dark already"
    again = Preferences(Settings())
    assert {key: again.value(key) for key in values} == values
    assert load_notices()[0].command == "true"
    assert paths.runs_folder() == tmp_path / "big" / "runs"
    assert (paths.home() / paths.FOLDERS).stat().st_mode & 0o777 == 0o600
    if "FOOTPLATE_CACHE" not in os.environ:
        assert paths.cache_folder() == tmp_path / "cache"
    for key in values:
        assert again.reset(key) == ""
    assert all(again.is_standard(key) for key in values)
    Settings().set("text_percent", 999)
    assert again.value("text_percent") == 100
    assert paths.runs_folder() == paths.home() / "runs"


def test_runs_folder_rejects_foreign_files(preferences: Preferences, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/job.toml").touch()
    assert BY_KEY["runs_folder"].find_problem(str(tmp_path)) == ""
    assert BY_KEY["runs_folder"].find_problem("~/new") == ""
    (tmp_path / "letter.txt").write_text("Dear Anna")
    assert "can't be written to" in BY_KEY["runs_folder"].find_problem(str(tmp_path / "letter.txt"))
    assert str(tmp_path) in preferences.set("runs_folder", str(tmp_path))
    assert paths.runs_folder() == paths.home() / "runs"


@pytest.mark.skipif(cache_limit.LIMIT_VARIABLE in os.environ, reason="the environment sets the limit")
def test_cache_limit_reaches_the_engine(preferences: Preferences, qtbot: QtBot) -> None:
    with qtbot.waitSignal(preferences.changed):
        assert preferences.set("cache_gib", 2.5) == ""
        assert preferences.value("cache_gib") == 2.5  # although it is applied in the background
    assert cache_limit.limit_bytes() == int(2.5 * cache_limit.GIB)
    assert preferences.value("cache_gib") == 2.5


@pytest.mark.skipif(cache_limit.LIMIT_VARIABLE in os.environ, reason="the environment sets the limit")
def test_unsaved_settings_are_reported(
    preferences: Preferences, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for variable in ("FOOTPLATE_HOME", "FOOTPLATE_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / "file"))
    changed: list[str] = []
    problems: list[str] = []
    preferences.changed.connect(changed.append)
    preferences.failed.connect(problems.append)
    assert preferences.set("restarted", True).startswith("Couldn't save this setting: ")
    assert (preferences.value("restarted"), changed) == (False, [])
    before = preferences.value("cache_gib")
    assert preferences.set("cache_gib", 2.5) == ""
    qtbot.waitUntil(lambda: changed == ["cache_gib"])
    assert preferences.value("cache_gib") == before
    (problem,) = problems
    assert str(tmp_path / "file") in problem


def test_settings_apply_at_once(open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    window = open_window()
    window.acts.preferences.trigger()
    dialog = window.findChild(PreferencesDialog)
    before = QApplication.font().pointSizeF()
    rows = dialog.rows
    rows["theme"].editor.set_value("dark")
    assert theme.is_dark()
    assert [each.isChecked() for each in window.acts.schemes] == [False, False, True]
    assert rows["theme"].reset.toolTip() == f"Reset to the default ({BY_KEY['theme'].titled_choices()['system']})"
    for _ in range(2):  # a chosen theme stays chosen
        window.acts.light_theme.trigger()
        assert [each.isChecked() for each in window.acts.schemes] == [False, True, False]
    assert (rows["theme"].editor.value(), theme.is_dark()) == ("light", False)
    rows["text_percent"].editor.set_value(150)
    rows["text_percent"].commit()
    assert QApplication.font().pointSizeF() == pytest.approx(1.5 * before)
    rows["memory_unit"].editor.set_value("decimal")
    assert size(47_100_000) == "47.1 MB"
    rows["runs_every_s"].editor.set_value(7)
    rows["runs_every_s"].commit()
    assert window.workspace.run_list._timer.interval() == 7000
    received: list[object] = []
    hosts = window.workspace.hosts
    for owner, name in ((hosts.history, "set_retention"), (hosts.local, "set_interval"), (hosts, "set_history")):
        monkeypatch.setattr(owner, name, received.append)
    for key, value in (("history_hours", 2), ("sample_every_s", 5), ("keep_device_history", False)):
        rows[key].editor.set_value(value)
        rows[key].commit()
    assert received == [7200, 5, False]
    rows["monitor_compact"].editor.set_value(True)
    assert window.workspace.monitor.bar.compact.isChecked()
    rows["text_percent"].editor.set_value("huge")
    rows["text_percent"].commit()
    assert rows["text_percent"].problem_label.text() == "Enter a whole number from 70 to 200."
    assert window.commands.preferences.value("text_percent") == 150
    for key in ("theme", "text_percent", "memory_unit", "monitor_compact"):
        assert (rows[key].reset.isVisible(), rows[key].label.objectName()) == (True, "heading")
        rows[key].reset.click()
        assert (dialog.focusWidget(), rows[key].label.objectName()) == (rows[key].editor.control, "")
        assert not rows[key].reset.isVisible()
        assert rows[key].reset.sizePolicy().retainSizeWhenHidden(), "the row doesn't move"
        assert rows[key].problem_label.text() == ""
    assert not theme.is_dark()
    assert QApplication.font().pointSizeF() == pytest.approx(before)
    assert size(47_100_000) == "44.9 MiB"
    dialog.close()
    Preferences(Settings()).set("runs_every_s", 9)
    dialog.show()
    assert (rows["runs_every_s"].editor.value(), dialog.focusWidget()) == (9, dialog.search)


def test_settings_search_and_environment_override(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache_limit.LIMIT_VARIABLE, "much")
    assert Preferences(Settings()).is_standard("cache_gib")
    monkeypatch.setenv(cache_limit.LIMIT_VARIABLE, "3")
    dialog = show_widget(PreferencesDialog(Preferences(Settings())))
    qtbot.keyClicks(dialog.search, "oldest")
    assert [key for key, row in dialog.rows.items() if row.isVisible()] == ["cache_gib"]
    row = dialog.rows["cache_gib"]
    assert not row.editor.isEnabled()
    assert row.editor.value() == 3
    assert row.reset.isHidden()
    assert cache_limit.LIMIT_VARIABLE in row.problem_label.text()
    headings = dialog.findChildren(QLabel, "section")
    assert [heading.text() for heading in headings if heading.isVisible()] == [row.setting.section]
    matching = join_visible_texts(dialog)
    qtbot.keyClicks(dialog.search, " xyz")
    assert not any(row.isVisible() for row in dialog.rows.values())
    assert "“oldest xyz”" in join_visible_texts(dialog)
    assert "“oldest" not in matching
    dialog.search.setText("decimal")  # a choice
    assert "memory_unit" in [key for key, each in dialog.rows.items() if each.isVisible()]
    dialog.choose("command")  # at the end
    assert (dialog.search.text(), dialog.focusWidget()) == ("", dialog.rows["command"].editor.control)
    assert not dialog.rows["command"].visibleRegion().isEmpty()


def test_settings_are_checked_while_typing_and_reset_to_their_default(
    show_widget: ShowWidget, preferences: Preferences, qtbot: QtBot
) -> None:
    row = show_widget(PreferencesDialog(preferences)).rows["text_percent"]
    for typed, is_wrong in (("9", True), ("90.5", True), ("90", False)):
        row.editor.set_value(typed)
        assert bool(row.problem_label.text()) is is_wrong
    row.commit()
    assert preferences.value("text_percent") == 90
    assert "100%" in row.reset.toolTip()
    assert "90" not in row.reset.toolTip()


def test_folder_on_a_dead_disk_is_neither_awaited_nor_saved(
    show_widget: ShowWidget, preferences: Preferences, qtbot: QtBot, hold_calls: HoldCalls, tmp_path: Path
) -> None:
    dead, good = str(tmp_path / "dead"), str(tmp_path / "good")
    answer = hold_calls(Path, "exists", lambda path: str(path) == dead)
    row = show_widget(PreferencesDialog(preferences)).rows["runs_folder"]
    with qtbot.waitActive(row.window()):
        row.window().activateWindow()
    row.editor.control.setFocus()
    qtbot.keyClicks(row.editor.control, good)
    qtbot.waitUntil(lambda: not row.findChildren(Background))
    assert preferences.value("runs_folder") == "", "it may still be incomplete"
    for folder in (dead, good):
        row.editor.line.clear()  # type: ignore[attr-defined]
        qtbot.keyClicks(row.editor.control, folder)
        qtbot.keyClick(row.editor.control, Qt.Key.Key_Return)
        if folder == good:
            qtbot.waitUntil(lambda: preferences.value("runs_folder") == good)
    answer.set()
    qtbot.waitUntil(lambda: not row.findChildren(Background))
    assert preferences.value("runs_folder") == good


def test_folder_that_was_chosen_in_a_dialog_is_saved(
    show_widget: ShowWidget, preferences: Preferences, qtbot: QtBot, tmp_path: Path
) -> None:
    row = show_widget(PreferencesDialog(preferences)).rows["runs_folder"]
    row.editor.set_value(str(tmp_path / "runs"))
    row.editor.edited.emit()
    qtbot.waitUntil(lambda: preferences.value("runs_folder") == str(tmp_path / "runs"))


def test_guide_lists_the_settings() -> None:
    page = Path(__file__).parents[3] / "resources" / "docs" / "window.md"
    tables = []
    for section in list_sections():
        rows = [f"| {each.title} | {each.help} |" for each in SETTINGS if each.section == section]
        tables.append("\n".join([f"**{section}**", "", "| setting | what it does |", "|---|---|", *rows]))
    assert "\n\n".join(tables) in page.read_text()
