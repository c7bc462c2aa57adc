"""The devices' history in full."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from gui.devices.history import DeviceHistory
from gui.devices.monitor import SPAN_S, MonitorPage
from tests.gui.devices.snapshots import gpu, snapshot


def test_that_the_last_ten_minutes_of_every_device_are_shown_and_followed(styled: QApplication, qtbot: QtBot) -> None:
    history = DeviceHistory()
    page = MonitorPage(history)
    qtbot.addWidget(page)
    page.resize(900, 700)
    page.show()
    for second in range(1000):
        history.add(snapshot(gpu(0), gpu(1), time=1_700_000_000.0 + second))
    plot = page.plots["utilization_percent"]
    qtbot.waitUntil(lambda: plot.horizontal_range == (999 - SPAN_S, 999.0), timeout=3000)
    qtbot.waitUntil(lambda: "GPU 0 87 %, GPU 1 87 %, CPU 37 %" in plot.accessibleDescription(), timeout=3000)
    history.add(snapshot(gpu(0), gpu(1), time=1_700_001_000.0))
    qtbot.waitUntil(lambda: plot.horizontal_range[1] == 1000.0, timeout=3000)


def test_that_a_zoomed_page_stays_and_a_button_leads_back(styled: QApplication, qtbot: QtBot) -> None:
    history = DeviceHistory()
    for second in range(700):
        history.add(snapshot(gpu(0), time=1_700_000_000.0 + second))
    page = MonitorPage(history)
    qtbot.addWidget(page)
    page.show()
    back = next(button for button in page.findChildren(QPushButton) if button.text() == "Back to newest")
    qtbot.waitUntil(lambda: page.group.extent[1] == 699, timeout=3000)
    assert not back.isEnabled()
    qtbot.keyClick(page.plots["power_w"], Qt.Key.Key_Plus)
    seen = page.group.range
    history.add(snapshot(gpu(0), time=1_700_000_700.0))
    qtbot.waitUntil(lambda: page.group.extent[1] == 700, timeout=3000)
    assert page.group.range == seen
    back.click()
    assert page.group.range == (700 - SPAN_S, 700)
    assert not back.isEnabled()


def test_that_the_lines_are_renamed_when_cudas_numbers_arrive(styled: QApplication, qtbot: QtBot) -> None:
    history = DeviceHistory()
    page = MonitorPage(history)
    qtbot.addWidget(page)
    page.show()
    history.add(snapshot(gpu(0, cuda_index=None, utilization_percent=10.0), time=1_700_000_000.0))
    plot = page.plots["utilization_percent"]
    qtbot.waitUntil(lambda: "GPU 0 10 %" in plot.accessibleDescription(), timeout=3000)
    history.add(snapshot(gpu(0, utilization_percent=20.0), time=1_700_000_001.0))
    qtbot.waitUntil(lambda: "GPU 1 20 %, CPU 37 %" in plot.accessibleDescription(), timeout=3000)
    assert "GPU 0" not in plot.accessibleDescription()


def test_that_what_no_device_can_tell_gets_no_room(styled: QApplication, qtbot: QtBot) -> None:
    history = DeviceHistory()
    page = MonitorPage(history)
    qtbot.addWidget(page)
    page.show()
    history.add(snapshot(time=1_700_000_000.0))
    qtbot.waitUntil(lambda: not page.plots["power_w"].isVisible(), timeout=3000)
    assert page.plots["utilization_percent"].isVisible()
    history.add(snapshot(gpu(0), time=1_700_000_001.0))
    qtbot.waitUntil(page.plots["power_w"].isVisible, timeout=3000)


def test_that_a_page_out_of_sight_does_nothing(styled: QApplication, qtbot: QtBot) -> None:
    history = DeviceHistory()
    page = MonitorPage(history)
    qtbot.addWidget(page)
    history.add(snapshot(gpu(0)))
    page.refresh()
    assert page.plots == {}
