"""View that lists alerts, and the banner that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.devices import Gpu, Xid
from gui.alerts.cards import AlertBanner, AlertCard
from gui.alerts.rule_row import RuleEditors, RuleRow
from gui.alerts.rules import DEFAULTS, KINDS, KindId, Rule, describe_rule
from gui.alerts.view import COLUMNS, SIDE_BY_SIDE, WHAT, AlertsView
from gui.alerts.watcher import Alerts
from gui.format import clock
from gui.style import theme
from gui.style.icons import icon
from gui.widgets.labels import IconLabel
from tests.gui.alerts.conftest import START, AlertsRecorder
from tests.gui.sources.devices.snapshots import UUIDS, gpu
from tests.support.painted import draw_icon
from tests.support.widgets import ShowWidget, find_button, is_right_of, join_visible_texts

Unfold = Callable[[KindId], RuleEditors]


def hot() -> Gpu:
    return gpu(0, temperature_c=93.0, slowdown_c=90.0)


@pytest.fixture
def view(show_widget: ShowWidget, watched: AlertsRecorder) -> AlertsView:
    return show_widget(AlertsView(watched.alerts), 1100, 800)


@pytest.fixture
def banner(show_widget: ShowWidget, watched: AlertsRecorder) -> Iterator[AlertBanner]:
    holder = show_widget(QWidget())
    yield AlertBanner(watched.alerts, holder)
    holder.close()


@pytest.fixture
def unfold(view: AlertsView) -> Unfold:
    def unfolded(kind: KindId) -> RuleEditors:
        row = view.rows[kind]
        row.fold.click()
        assert row.editors is not None
        return row.editors

    return unfolded


def test_banner_shows_worst_alert_and_count(banner: AlertBanner, watched: AlertsRecorder) -> None:
    assert banner.isHidden()
    watched.feed(hot(), seconds=11)
    assert banner.isVisible()
    assert banner.text() == "GPU 1 – Temperature: 93 °C, at or above 90 °C for 10 s."
    watched.feed(gpu(0, temperature_c=93.0, slowdown_c=90.0, xids=(Xid(START, 79),)))
    sentence = "GPU 1 – Xid error: Xid 79: the GPU has fallen off the bus."
    assert banner.text() == f"{sentence} (1 more)"
    assert banner.label.accessibleName() == f"Alert: {banner.text()}"
    assert banner.label.toolTip().splitlines() == [sentence, "GPU 1 – Temperature: 93 °C, at or above 90 °C for 10 s."]
    assert banner.findChild(IconLabel).accessibleName() == "Error"


def test_banner_ignores_silent_hosts(banner: AlertBanner, watched: AlertsRecorder) -> None:
    watched.feed(hot(), seconds=11)
    watched.feed(hot(), seconds=16, status="not_answering", message="NVML is silent.")
    assert watched.kinds == ["not_answering", "temperature"]
    assert banner.text() == "GPU 1 – Temperature: 93 °C, at or above 90 °C for 10 s."


def test_banner_buttons(banner: AlertBanner, watched: AlertsRecorder, qtbot: QtBot) -> None:
    watched.feed(hot(), seconds=11)
    with qtbot.waitSignal(banner.show_requested):
        find_button(banner, "Show all alerts").click()
    find_button(banner, "Dismiss the alerts").click()
    assert banner.isHidden()
    assert watched.kinds == ["temperature"]


def test_card_of_active_alert(view: AlertsView, watched: AlertsRecorder, qtbot: QtBot) -> None:
    assert not view.acknowledge_all.isEnabled()
    assert view.history.rowCount() == 0
    watched.feed(hot(), seconds=11)
    (card,) = view.findChildren(AlertCard)
    qtbot.waitUntil(card.isVisible)
    for text in ("GPU 1 · Temperature", "93 °C, at or above 90 °C", KINDS["temperature"].remedy):
        assert text in join_visible_texts(card)
    assert "acknowledged" not in join_visible_texts(card)
    (remedy,) = (label for label in card.findChildren(QLabel) if label.text() == KINDS["temperature"].remedy)
    view.resize(420, 800)
    qtbot.waitUntil(lambda: remedy.height() >= 2 * remedy.fontMetrics().height())
    assert "No active alerts" not in join_visible_texts(view)
    icons = [card.findChild(IconLabel).pixmap().toImage()]
    card.acknowledge.click()
    icons.append(card.findChild(IconLabel).pixmap().toImage())
    assert icons == [draw_icon(icon("warning", color)) for color in ("warning", "muted")]
    assert card.acknowledge.isHidden()
    assert f"since {clock(START + 1)} · acknowledged" in join_visible_texts(card)
    watched.feed(gpu(0, temperature_c=93.0, slowdown_c=90.0, xids=(Xid(START, 79),)))
    qtbot.waitUntil(lambda: sorted(view.findChildren(AlertCard), key=AlertCard.y)[1] is card)
    assert view.acknowledge_all.isEnabled()
    view.acknowledge_all.click()
    assert not view.acknowledge_all.isEnabled()
    watched.set("temperature", on=False)
    qtbot.waitUntil(lambda: view.findChildren(AlertCard) == [])


def test_view_includes_earlier_alerts(show_widget: ShowWidget, watched: AlertsRecorder) -> None:
    watched.feed(hot(), seconds=11)
    view = show_widget(AlertsView(watched.alerts), 1100, 800)
    assert AlertBanner(watched.alerts, view).isVisible()
    assert len(view.findChildren(AlertCard)) == 1
    assert join_visible_texts(view).count("1 alert") == 2
    view.rows["temperature"].fold.click()
    assert "GPU 1" in [box.text() for box in view.rows["temperature"].findChildren(QCheckBox)]


def test_history_table(view: AlertsView, watched: AlertsRecorder) -> None:
    tester = QAbstractItemModelTester(view.history, QAbstractItemModelTester.FailureReportingMode.Warning)

    def has_icon(row: int, color: str) -> bool:
        row_icon = view.history.index(row, WHAT).data(Qt.ItemDataRole.DecorationRole)
        return draw_icon(row_icon) == draw_icon(icon("warning", color))

    watched.feed(hot(), seconds=11)
    assert [view.history.index(0, column).data() for column in (1, 2, 3)] == [
        "active",
        "GPU 1",
        "Temperature: 93 °C, at or above 90 °C for 10 s.",
    ]
    assert has_icon(0, "warning")
    watched.feed(gpu(0, temperature_c=50.0, xids=(Xid(watched.now, 31),)), seconds=30)
    view.acknowledge_all.click()
    assert has_icon(1, "muted")
    assert [view.history.index(row, 1).data() for row in (0, 1)] == ["–", "11 s"]
    watched.feed(gpu(0, lost=True, lost_since=START))
    assert view.history.rowCount() == 3
    assert "Xid 31" in view.history.index(1, 3).data()
    assert tester.model() is view.history


def test_threshold_is_applied_by_return(
    unfold: Unfold, view: AlertsView, watched: AlertsRecorder, qtbot: QtBot
) -> None:
    editors = unfold("temperature")
    line = editors.threshold.line
    qtbot.keyClicks(line, "85")
    assert watched.alerts.rules["temperature"].threshold is None
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert watched.alerts.rules["temperature"].threshold == 85.0
    row = view.rows["temperature"]
    assert row.summary.text() == describe_rule(watched.alerts.rules["temperature"])
    assert row.reset.isVisible()
    row.reset.click()
    assert row.reset.isHidden()
    assert watched.alerts.rules["temperature"] == DEFAULTS["temperature"]
    assert line.text() == ""


def test_invalid_threshold_shows_problem(unfold: Unfold, watched: AlertsRecorder, qtbot: QtBot) -> None:
    editors = unfold("memory")
    line = editors.threshold.line
    line.clear()
    qtbot.keyClicks(line, "hot")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert line.property("severity") == "error"
    assert line.accessibleDescription() in join_visible_texts(editors)
    lasts = editors.lasts.line
    assert (lasts.property("severity") or "", lasts.accessibleDescription()) == ("", "")
    assert watched.alerts.rules == DEFAULTS
    watched.set("xid", on=False)  # a change of another rule keeps typed text
    assert line.text() == "hot"
    watched.set("memory", threshold=90.0)
    assert (line.text(), line.property("severity")) == ("90", "")


def test_rule_editors_show_minutes_and_later_devices(
    unfold: Unfold, view: AlertsView, watched: AlertsRecorder, qtbot: QtBot
) -> None:
    editors, row = unfold("idle"), view.rows["idle"]
    line = editors.lasts.line
    assert editors.lasts.value() == 10
    for typed, seconds, has_problem in (("5", 300, False), ("long", 300, True), ("7", 420, False)):
        line.clear()
        qtbot.keyClicks(line, typed)
        qtbot.keyClick(line, Qt.Key.Key_Return)
        assert watched.alerts.rules["idle"].for_s == seconds
        assert bool(line.accessibleDescription()) == has_problem
    watched.feed(gpu(0, cuda_index=10), gpu(1, cuda_index=2))
    editors.all_devices.click()
    boxes = [box for box in editors.findChildren(QCheckBox) if box.text().startswith("GPU")]
    qtbot.waitUntil(lambda: [box.text() for box in sorted(boxes, key=QWidget.y)] == ["GPU 2", "GPU 10"])
    row.on.click()
    text = describe_rule(watched.alerts.rules["idle"])
    assert (row.summary.text().endswith(text), row.summary.text() == text) == (True, False)


def test_rule_about_hosts_is_edited_without_devices(unfold: Unfold, watched: AlertsRecorder, qtbot: QtBot) -> None:
    watched.feed(gpu(0))
    editors = unfold("not_answering")
    assert not any(box.text().startswith("GPU") for box in editors.findChildren(QCheckBox))
    editors.notify.click()
    line = editors.lasts.line
    line.clear()
    qtbot.keyClicks(line, "60")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    rule = watched.alerts.rules["not_answering"]
    assert (rule.notify, rule.for_s, rule.devices) == (False, 60.0, None)


def test_rule_for_some_devices(unfold: Unfold, watched: AlertsRecorder) -> None:
    watched.feed(gpu(0), gpu(1))
    watched.set("lost", devices=("GPU-gone",))
    editors = unfold("lost")
    assert not editors.all_devices.isChecked()
    boxes = {box.text(): box for box in editors.findChildren(QCheckBox) if box.text().startswith("GPU")}
    assert sorted(boxes) == ["GPU 0", "GPU 1", "GPU-gone (not here)"]
    boxes["GPU 1"].click()
    boxes["GPU-gone (not here)"].click()
    assert watched.alerts.rules["lost"].devices == (UUIDS[0],)
    boxes["GPU 1"].click()
    assert watched.alerts.rules["lost"].devices == (UUIDS[0],)
    editors.all_devices.click()
    assert watched.alerts.rules["lost"].devices is None
    assert not boxes["GPU 0"].isVisible()


def test_rule_row_keyboard(view: AlertsView, watched: AlertsRecorder, qtbot: QtBot) -> None:
    row = view.rows["power"]
    row.on.setFocus()
    qtbot.keyClick(row.on, Qt.Key.Key_Space)
    assert watched.alerts.rules["power"].on
    assert row.reset.isVisible()
    view.rows["idle"].on.click()
    assert [name for name, each in view.rows.items() if each.reset.isVisible()] == ["power", "idle"]
    row.fold.setFocus()
    for is_open in (True, False):
        qtbot.keyClick(row.fold, Qt.Key.Key_Space)
        assert row.editors.isVisible() == is_open


def test_view_shows_messages_and_test_result(view: AlertsView, watched: AlertsRecorder, qtbot: QtBot) -> None:
    watched.alerts.message.emit("The disk is full.")
    assert "The disk is full." in join_visible_texts(view)
    watched.alerts.test_requested.connect(lambda answer: answer("Sent."))
    view.test.click()
    (result,) = [label for label in view.findChildren(QLabel) if label.text() == "Sent."]
    qtbot.waitUntil(lambda: result.width() > view.rows["temperature"].width() / 2)  # it has the remaining width


def test_view_shows_the_problem_of_damaged_rules(show_widget: ShowWidget, tmp_path: Path) -> None:
    (tmp_path / "alerts.json").write_text("{")
    assert "damaged" in join_visible_texts(show_widget(AlertsView(Alerts(folder=tmp_path))))


def test_view_layout_by_width(view: AlertsView, watched: AlertsRecorder, qtbot: QtBot) -> None:
    rules, alerts = view.runs.parentWidget(), view.table.parentWidget()
    view.resize(SIDE_BY_SIDE - 1, 2400)
    qtbot.waitUntil(lambda: alerts.width() == rules.width() and alerts.height() == alerts.sizeHint().height())
    watched.feed(hot(), seconds=11)
    for width, in_columns in ((SIDE_BY_SIDE - 1, False), (SIDE_BY_SIDE, True), (SIDE_BY_SIDE - 1, False)):
        view.resize(width, 2400)
        qtbot.waitUntil(lambda expected=in_columns: is_right_of(view.rows["temperature"], view.table) is expected)
        if in_columns:
            assert abs(alerts.width() - rules.width()) <= 1
        else:  # the history gets the remaining height
            qtbot.waitUntil(lambda: view.table.height() > 1000 > rules.height())


def test_rule_shows_its_summary_below_the_name_if_narrow(show_widget: ShowWidget, qtbot: QtBot) -> None:
    row = show_widget(RuleRow(KINDS["power"], Rule(kind="power", threshold=450)))
    for width, in_one_row in ((479, False), (480, True), (479, False)):
        row.resize(width, 200)
        qtbot.waitUntil(lambda expected=in_one_row: is_right_of(row.summary, row.on) is expected)
    assert row.summary.x() == row.on.x()
    with qtbot.waitSignal(row.edited) as edited:
        row.reset.click()
    assert edited.args == [DEFAULTS["power"]]


@pytest.mark.usefixtures("normal_text")
def test_history_columns_follow_text_size(view: AlertsView) -> None:
    table = view.table
    theme.choose("system", 200)
    for number, column in enumerate(COLUMNS[:WHAT]):
        assert table.columnWidth(number) - table.fontMetrics().horizontalAdvance(column.longest_text) == 26
    assert {row.on.width() for row in view.rows.values()} == {
        max(row.on.sizeHint().width() for row in view.rows.values())
    }
