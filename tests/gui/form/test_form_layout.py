"""Layout of the form: main fields, sections, and the search for a setting."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from engine.contract.problems import Problem
from gui.form.fields import MAIN_FIELDS, METHOD, SECTIONS
from gui.form.form import JobForm
from gui.form.setting_filter import SettingFilter
from tests.support.widgets import OpenWindow, is_right_of, join_visible_texts


@pytest.fixture(scope="module", autouse=True)
def style_sheet() -> None:
    """Override the fixture that removes the style sheet, because these tests depend on it."""


def find(form: JobForm, qtbot: QtBot, text: str) -> SettingFilter:
    qtbot.keyClicks(form.body.filter.box, text)
    return form.body.filter


def visible_rows(form: JobForm) -> list[str]:
    return [name for names in SECTIONS.values() for name in names if form.rows[name].isVisible()]


def is_in_sight(widget: QWidget) -> bool:
    return widget.visibleRegion().boundingRect() == widget.rect()


def test_main_fields_and_train_fit_at_1280_by_800(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.resize(1280, 800)
    form = window.form
    qtbot.waitUntil(form.train.isEnabled)
    rows = [form.rows[name] for name in MAIN_FIELDS if form.rows[name].has_effect]
    qtbot.waitUntil(lambda: all(map(is_in_sight, [*rows, form.body.devices, form.train])))
    top = form.train.mapTo(window, QPoint()).y()
    assert all(row.mapTo(window, QPoint()).y() < top for row in rows)


def test_method_section_names_its_values_while_folded(form: JobForm, qtbot: QtBot) -> None:
    summary = form.body.section(METHOD).summary
    qtbot.waitUntil(lambda: summary.isVisible() and "Image classification" in summary.text())
    form.set_field("learning_rate", 0.02)
    qtbot.waitUntil(lambda: "learning rate 0.02" in summary.text())
    assert summary.text().endswith("Single device")
    form.focus_field("learning_rate")
    assert not summary.isVisible()


def test_section_creates_its_widgets_when_opened(form: JobForm) -> None:
    folded = [section for section in form.sections if not section.is_open]
    empty = [row for section in folded for row in section.rows if not row.findChildren(QWidget)]
    assert len(empty) > 40  # otherwise the window would start slowly
    section = next(section for section in folded if section.rows[0] in empty)
    section.set_open(True)
    assert all(row.editor.control.isVisible() and row.label.isVisible() for row in section.rows if row.has_effect)
    assert not section.rows[0].reset.isVisible()


def test_tab_order_follows_the_rows(form: JobForm) -> None:
    for section in reversed(form.sections):
        section.set_open(True)
    controls = [row.editor.control for section in form.sections for row in section.rows]
    chain: list[QWidget] = [form.body.filter.box]
    while (following := chain[-1].nextInFocusChain()) is not chain[0]:
        chain.append(following)
    assert [widget for widget in chain if widget in controls] == controls


def test_new_editors_have_the_values_of_their_fields(form: JobForm) -> None:
    values = form.fields.editor_values()
    for row in form.rows.values():
        row.create_widgets()
    assert form.fields.editor_values() == values
    assert not form.is_edited


@pytest.mark.parametrize(("width", "has_two_columns"), [(500, False), (1000, True), (1400, True)])
def test_wide_form_has_two_columns(form: JobForm, width: int, has_two_columns: bool, qtbot: QtBot) -> None:
    form.window().resize(width, 700)
    qtbot.waitUntil(lambda: is_right_of(form.body.filter, form.rows["epochs"]) == has_two_columns)


def test_filter_finds_by_label_name_and_help(form: JobForm, qtbot: QtBot) -> None:
    found = find(form, qtbot, "gradient").list_matches()
    assert found[:2] == ["accumulation", "clip_norm"]  # by label
    assert "cpu_offload" not in visible_rows(form)  # has no effect
    assert set(visible_rows(form)) <= set(found)
    form.body.filter.box.setText("loss")
    assert form.body.filter.list_matches()[:3] == ["loss", "on_not_finite", "class_weights"]  # the last one by help
    form.body.filter.box.setText("ema_decay")
    assert visible_rows(form) == ["ema_decay"]
    form.body.filter.box.setText("torch.compile")
    assert visible_rows(form) == ["compile"]
    form.body.filter.box.setText("offload")
    assert form.body.filter.list_matches() == []
    form.body.filter.box.setText("optimizer")
    assert {name for name in SECTIONS["Optimizer"] if form.rows[name].has_effect} <= set(visible_rows(form))


def test_filter_is_cleared_by_escape_and_restores_sections(form: JobForm, qtbot: QtBot) -> None:
    form.sections[1].set_open(True)
    before = [section.is_open for section in form.sections]
    box = find(form, qtbot, "warm-up").box
    assert [section.title for section in form.sections if section.isVisible()] == ["Schedule"]
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    assert not box.text()
    assert [section.is_open for section in form.sections] == before
    assert all(section.isVisible() for section in form.sections)


def test_filter_return_key_focuses_the_match(form: JobForm, qtbot: QtBot) -> None:
    found = find(form, qtbot, "warm-up")
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Up):
        qtbot.keyClick(found.box, key)
    with qtbot.waitSignal(found.chosen) as chosen:
        qtbot.keyClick(found.box, Qt.Key.Key_Return)
    assert chosen.args == [found.list_matches()[1]]
    for key in (Qt.Key.Key_Up, Qt.Key.Key_Up):
        qtbot.keyClick(found.box, key)
    with qtbot.waitSignal(found.chosen) as chosen:
        qtbot.keyClick(found.box, Qt.Key.Key_Return)
    assert chosen.args == [found.list_matches()[-1]]
    assert form.window().focusWidget() is form.rows[found.list_matches()[-1]].editor.control


def test_filter_reports_no_match(form: JobForm, qtbot: QtBot) -> None:
    assert find(form, qtbot, "zebra").list_matches() == []
    assert not any(section.isVisible() for section in form.sections)
    assert "No setting matches “zebra”." in join_visible_texts(form.body.filter)
    form.body.filter.box.setText("warm-up")
    assert "No setting" not in join_visible_texts(form.body.filter)


def test_unavailable_weights_are_reported_below_the_model(form: JobForm, qtbot: QtBot) -> None:
    warning = Problem("pretrained", "The weights can't be downloaded.", "", "warning")
    form.body.show_problems([warning])
    assert form.rows["pretrained"].problem_label.isVisible()
    assert not form.body.section(METHOD).is_open
    form.body.show_problems([Problem(name, "It is unusual.", "", "warning") for name in ("recipe", "seed")])
    assert [section.title for section in form.sections if section.is_open] == [METHOD]
    form.body.section(METHOD).set_open(False)
    form.body.show_problems([Problem("strategy", "It needs two devices.")])
    assert form.body.section(METHOD).is_open
    assert not form.rows["pretrained"].problem_label.isVisible()
