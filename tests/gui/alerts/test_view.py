"""Alerts view and the banner of alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.devices import Gpu, Xid
from gui.alerts.cards import AlertBanner, AlertCard
from gui.alerts.rule_row import RuleEditors, RuleRow
from gui.alerts.rules import DEFAULTS, KINDS
from gui.alerts.view import SIDE_BY_SIDE, AlertsView
from gui.style import theme
from tests.gui.alerts.alert_time import START, Watched
from tests.gui.sources.devices.snapshots import UUIDS, gpu


def hot() -> Gpu:
    return gpu(0, temperature_c=93.0, slowdown_c=90.0)


@pytest.fixture
def watched(styled: QApplication, tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def view(watched: Watched, qtbot: QtBot) -> AlertsView:
    created = AlertsView(watched.alerts)
    qtbot.addWidget(created)
    created.resize(1100, 800)
    created.show()
    return created


@pytest.fixture
def banner(watched: Watched, qtbot: QtBot) -> Iterator[AlertBanner]:
    holder = QWidget()
    qtbot.addWidget(holder)
    holder.show()
    yield AlertBanner(watched.alerts, holder)
    holder.close()


@pytest.fixture
def unfold(view: AlertsView) -> Callable[[str], RuleEditors]:
    def unfolded(kind: str) -> RuleEditors:
        row = view.rows[kind]  # type: ignore[index]
        row.fold.click()
        assert row.editors is not None
        return row.editors

    return unfolded


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def button(widget: QWidget, name: str) -> QPushButton:
    return next(b for b in widget.findChildren(QPushButton) if name in (b.accessibleName() or b.text()))


def test_banner_shows_worst_alert_and_count(banner: AlertBanner, watched: Watched) -> None:
    assert banner.isHidden()
    watched.feed(hot(), seconds=11)
    assert banner.isVisible()
    assert banner.text() == "GPU 1 – Temperature: 93 °C, at or above 90 °C for 10 s."
    watched.feed(gpu(0, temperature_c=93.0, slowdown_c=90.0, xids=(Xid(START, 79),)))
    assert banner.text() == "GPU 1 – Xid error: Xid 79: the GPU has fallen off the bus. (1 more)"


def test_banner_ignores_silent_hosts(banner: AlertBanner, watched: Watched) -> None:
    watched.feed(hot(), seconds=11)
    watched.feed(hot(), seconds=16, status="not_answering", message="NVML is silent.")
    assert watched.kinds == ["not_answering", "temperature"]
    assert banner.text() == "GPU 1 – Temperature: 93 °C, at or above 90 °C for 10 s."


def test_banner_buttons(banner: AlertBanner, watched: Watched, qtbot: QtBot) -> None:
    watched.feed(hot(), seconds=11)
    with qtbot.waitSignal(banner.show_requested):
        button(banner, "Show all alerts").click()
    button(banner, "Dismiss the alerts").click()
    assert banner.isHidden()
    assert watched.kinds == ["temperature"]


def test_view_without_alerts(view: AlertsView) -> None:
    assert "No active alerts" in texts(view)
    assert not view.acknowledge_all.isEnabled()
    assert view.history.rowCount() == 0


def test_card_of_active_alert(view: AlertsView, watched: Watched, qtbot: QtBot) -> None:
    watched.feed(hot(), seconds=11)
    (card,) = view.findChildren(AlertCard)
    qtbot.waitUntil(card.isVisible)
    for part in ("GPU 1 · Temperature", "93 °C, at or above 90 °C", "since ", KINDS["temperature"].remedy):
        assert part in texts(card)
    assert "1 alert" in texts(view)
    card.acknowledge.click()
    assert "acknowledged" in texts(card)
    assert card.acknowledge.isHidden()
    watched.set("temperature", on=False)
    assert "No active alerts" in texts(view)


def test_history_table(view: AlertsView, watched: Watched) -> None:
    tester = QAbstractItemModelTester(view.history, QAbstractItemModelTester.FailureReportingMode.Warning)
    watched.feed(hot(), seconds=11)
    assert [view.history.index(0, column).data() for column in (1, 2, 3)] == [
        "active",
        "GPU 1",
        "Temperature: 93 °C, at or above 90 °C for 10 s.",
    ]
    watched.feed(gpu(0, temperature_c=50.0, xids=(Xid(watched.now, 31),)), seconds=30)
    view.acknowledge_all.click()
    assert [view.history.index(row, 1).data() for row in (0, 1)] == ["–", "11 s"]
    watched.feed(gpu(0, lost=True, lost_since=START))
    assert view.history.rowCount() == 3
    assert "Xid 31" in view.history.index(1, 3).data()
    assert tester.model() is view.history


def test_rule_rows_have_summaries(view: AlertsView) -> None:
    assert list(view.rows) == list(KINDS)
    assert view.rows["idle"].summary.text() == "below 5 % for 10 min · notification"
    assert view.rows["power"].summary.text().startswith("off · ")
    assert not view.rows["power"].on.isChecked()
    assert not view.rows["power"].reset.isVisible()


def test_threshold_is_committed_by_enter(
    unfold: Callable[[str], RuleEditors], view: AlertsView, watched: Watched, qtbot: QtBot
) -> None:
    editors = unfold("temperature")
    assert editors.threshold is not None
    line = editors.threshold.line
    assert line.placeholderText() == "its own slowdown temperature"
    qtbot.keyClicks(line, "85")
    assert watched.alerts.rules["temperature"].threshold is None
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert watched.alerts.rules["temperature"].threshold == 85.0
    row = view.rows["temperature"]
    assert row.summary.text().startswith("at or above 85 °C for 10 s")
    row.reset.click()
    assert watched.alerts.rules["temperature"] == DEFAULTS["temperature"]
    assert line.text() == ""


def test_invalid_threshold_shows_problem(unfold: Callable[[str], RuleEditors], watched: Watched, qtbot: QtBot) -> None:
    editors = unfold("memory")
    assert editors.threshold is not None
    line = editors.threshold.line
    line.clear()
    qtbot.keyClicks(line, "hot")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert "Enter a number from 1 to 100 %." in texts(editors)
    assert line.property("severity") == "error"
    assert "Enter a number" in line.accessibleDescription()
    assert watched.alerts.rules == DEFAULTS
    watched.set("xid", on=False)  # a change of another rule keeps typed text
    assert line.text() == "hot"


def test_long_durations_are_in_minutes(unfold: Callable[[str], RuleEditors], watched: Watched, qtbot: QtBot) -> None:
    editors = unfold("idle")
    assert editors.lasts is not None
    assert editors.lasts.line.text() == "10"
    editors.lasts.line.setText("2.5")
    qtbot.keyClick(editors.lasts.line, Qt.Key.Key_Return)
    assert watched.alerts.rules["idle"].for_s == 150.0


def test_rule_for_some_devices(unfold: Callable[[str], RuleEditors], watched: Watched) -> None:
    watched.feed(gpu(0), gpu(1))
    watched.set("lost", devices=("GPU-gone",))
    editors = unfold("lost")
    assert not editors.all_devices.isChecked()
    boxes = {box.text(): box for box in editors._boxes.values()}
    assert list(boxes) == ["GPU 0", "GPU 1", "GPU-gone (not here)"]
    boxes["GPU 1"].click()
    boxes["GPU-gone (not here)"].click()
    assert watched.alerts.rules["lost"].devices == (UUIDS[0],)
    boxes["GPU 1"].click()
    assert "Choose at least one" in texts(editors)
    assert watched.alerts.rules["lost"].devices == (UUIDS[0],)
    editors.all_devices.click()
    assert watched.alerts.rules["lost"].devices is None
    assert not boxes["GPU 0"].isVisible()


def test_editors_leave_out_unused_fields(unfold: Callable[[str], RuleEditors]) -> None:
    assert (unfold("xid").threshold, unfold("memory_errors").lasts) == (None, None)
    assert not unfold("not_answering").all_devices.isVisible()


def test_rule_row_keyboard(view: AlertsView, watched: Watched, qtbot: QtBot) -> None:
    row = view.rows["power"]
    row.on.setFocus()
    qtbot.keyClick(row.on, Qt.Key.Key_Space)
    assert watched.alerts.rules["power"].on
    assert row.reset.isVisible()
    row.fold.setFocus()
    qtbot.keyClick(row.fold, Qt.Key.Key_Space)
    assert row.editors is not None
    assert row.editors.isVisible()


def test_tab_order_enters_editors(view: AlertsView, watched: Watched, qtbot: QtBot) -> None:
    watched.feed(gpu(0))
    row = view.rows["temperature"]
    row.fold.click()
    assert row.editors is not None
    watched.feed(gpu(0), gpu(1))
    row.editors.all_devices.click()
    view.activateWindow()
    row.fold.setFocus()
    passed = []
    while "Edit the rule Memory temperature" not in passed and len(passed) < 20:
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        reached = QApplication.focusWidget()
        passed.append(reached.accessibleName() or reached.text())  # type: ignore[attr-defined]
    assert passed == [
        "Temperature",
        "Temperature: at or above, in °C",
        "Temperature: for at least, in s",
        "Desktop notification for Temperature",
        "All devices for Temperature",
        "GPU 0 for Temperature",
        "GPU 1 for Temperature",
        "Edit the rule Memory temperature",
    ]


def test_view_widgets_have_accessible_names(view: AlertsView, watched: Watched) -> None:
    watched.feed(hot(), seconds=11)
    for row in view.rows.values():
        row.fold.click()
    names = [
        widget.accessibleName() or getattr(widget, "text", str)()
        for widget in view.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.isVisible()
    ]
    assert all(names)
    for kind in KINDS.values():
        assert f"Edit the rule {kind.title}" in names


def test_view_shows_file_problem(view: AlertsView, watched: Watched) -> None:
    assert not view._problem.isVisible()
    watched.alerts.message.emit("The disk is full.")
    assert "The disk is full." in texts(view)


def test_view_shows_test_result(view: AlertsView, watched: Watched) -> None:
    watched.alerts.test_requested.connect(lambda answer: answer("Sent."))
    view.test.click()
    assert "Sent." in texts(view)


@pytest.mark.parametrize(("width", "beside"), [(SIDE_BY_SIDE - 1, False), (SIDE_BY_SIDE, True)])
def test_view_layout_by_width(view: AlertsView, watched: Watched, qtbot: QtBot, width: int, beside: bool) -> None:
    watched.feed(hot(), seconds=11)

    def beside_now() -> bool:
        rules = view.rows["temperature"].mapTo(view, view.rows["temperature"].rect().topLeft())
        table = view.table.mapTo(view, view.table.rect().topRight())
        return rules.x() > table.x()

    view.resize(width, 800)
    qtbot.waitUntil(lambda: beside_now() is beside)


@pytest.mark.parametrize("dark", [False, True])
def test_banner_icon_has_severity_color(
    banner: AlertBanner, watched: Watched, monkeypatch: pytest.MonkeyPatch, dark: bool
) -> None:
    monkeypatch.setattr(theme, "is_dark", lambda: dark)
    watched.feed(gpu(0, xids=(Xid(START, 79),)))
    mark = next(label for label in banner.findChildren(QLabel) if label.accessibleName() == "Error")
    image = mark.pixmap().toImage()
    color = theme.colors().error
    assert any(image.pixelColor(x, y).name() == color for x in range(image.width()) for y in range(image.height()))


def test_rule_row_offers_devices(styled: QApplication, qtbot: QtBot) -> None:
    row = RuleRow(KINDS["lost"], DEFAULTS["lost"])
    qtbot.addWidget(row)
    row.set_devices({"a": "GPU 0"})
    row.fold.click()
    assert row.editors is not None
    with qtbot.waitSignal(row.edited, check_params_cb=lambda rule: rule.notify is False):
        row.editors.notify.click()
