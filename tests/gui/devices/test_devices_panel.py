"""Rows of the devices panel, and their selection."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QCheckBox, QLabel, QSpinBox, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU, Gpu, GpuProcess, Mig, Snapshot
from gui.devices.panel import DevicesPanel
from gui.devices.rows import DeviceRow
from gui.devices.sparkline import Sparkline
from gui.sources.devices import device_format
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from tests.gui.sources.devices.snapshots import CORES, UUIDS, gpu, held_by, snapshot
from tests.support.painted import describe_painting
from tests.support.widgets import ShowWidget, find_button


def show_snapshot(panel: DevicesPanel, snapshot: Snapshot, host: str = "") -> None:
    """Add a snapshot to the panel's history and refresh the panel."""
    panel.history.add(snapshot, host)
    panel.update_snapshot(snapshot, host)


@pytest.fixture
def panel(show_widget: ShowWidget) -> DevicesPanel:
    return show_widget(DevicesPanel(DeviceHistory()), 290, 900)


FindBox = Callable[[str], QCheckBox]


@pytest.fixture
def check(panel: DevicesPanel) -> FindBox:
    def find(beginning: str) -> QCheckBox:
        return next(box for box in panel.findChildren(QCheckBox) if box.accessibleName().startswith(beginning))

    return find


def row_of(check: QCheckBox) -> DeviceRow:
    row = check.parentWidget()
    assert isinstance(row, DeviceRow)
    return row


def panel_text(panel: QWidget) -> str:
    return "\n".join(label.text() for label in panel.findChildren(QLabel) if not label.isHidden())


def test_gpus_are_titled_and_ordered_by_cuda(panel: DevicesPanel, check: FindBox, qtbot: QtBot) -> None:
    show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    names = ("GPU 0", "GPU 1", "CPU")
    qtbot.waitUntil(lambda: all(check(name).isVisible() for name in names))
    panel.grab()  # lays out the cards
    places = [check(name).mapTo(panel, QPoint()).y() for name in names]
    assert places == sorted({*places})
    assert places[0] < 100, "the free space is below"
    panel.set_selection(UUIDS[:2])
    assert panel.selection() == (UUIDS[1], UUIDS[0])
    assert UUIDS[1] in check("GPU 0").accessibleDescription()
    assert "CUDA calls it 0, NVML 1" in row_of(check("GPU 0")).toolTip()


def test_eight_rows_fit_in_small_window(show_widget: ShowWidget, qtbot: QtBot) -> None:
    panel = show_widget(DevicesPanel(DeviceHistory()), 290, 690)
    show_snapshot(panel, snapshot(*(gpu(n) for n in range(8))))
    rows = panel.findChildren(DeviceRow)
    qtbot.waitUntil(lambda: all(row.visibleRegion().boundingRect().size() == row.size() for row in rows))
    assert max(row.height() for row in rows) <= 64


def test_first_chosen_row_is_scrolled_into_view(show_widget: ShowWidget, qtbot: QtBot) -> None:
    panel = show_widget(DevicesPanel(DeviceHistory()), 290, 250)
    busy = [gpu(n, cuda_index=n, processes=held_by("anna", 1 << 30)) for n in range(7)]
    show_snapshot(panel, snapshot(*busy, gpu(7, cuda_index=7)))
    panel.set_hosts(("ws1",))
    show_snapshot(panel, snapshot(gpu(0)), "ws1")

    def list_sights() -> list[bool]:
        """Return, for each checked row, whether it is completely visible."""
        rows = [row for row in panel.findChildren(DeviceRow) if row.check.isChecked()]
        return [row.visibleRegion().boundingRect().height() == row.height() for row in rows]

    assert panel.selection() == (UUIDS[7],)
    qtbot.waitUntil(lambda: list_sights() == [True])
    panel.set_selection(("ws1:cpu", UUIDS[0]))
    qtbot.waitUntil(lambda: list_sights() == [True, False])


def test_click_on_row_toggles_device(panel: DevicesPanel, check: FindBox, qtbot: QtBot) -> None:
    show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    panel.set_selection(())
    row = row_of(check("GPU 1"))
    before = row.grab().toImage().pixelColor(4, row.height() // 2)
    for expected in ((UUIDS[0],), ()):
        qtbot.mouseClick(row, Qt.MouseButton.RightButton, pos=row.rect().center())
        qtbot.mouseClick(row, Qt.MouseButton.LeftButton, pos=row.rect().center())
        assert panel.selection() == expected
        assert (row.grab().toImage().pixelColor(4, row.height() // 2) == before) is not bool(expected)


def test_buttons_choose_all_free_or_no_devices(panel: DevicesPanel, qtbot: QtBot) -> None:
    show_snapshot(panel, snapshot(gpu(0, processes=held_by("anna", 1 << 30)), gpu(1), gpu(2, cuda_index=2, lost=True)))
    expected = {"All": (UUIDS[1], UUIDS[0]), "Free": (UUIDS[1],), "None": ()}
    for name, devices in expected.items():
        with qtbot.waitSignal(panel.selection_changed):
            find_button(panel, name).click()
        assert panel.selection() == devices
        assert f"{len(devices)} of 3 selected" in panel_text(panel)
    show_snapshot(panel, snapshot(time=1_700_000_001.0))
    assert "selected" not in panel_text(panel)


@pytest.mark.parametrize(
    ("held", "received"),
    [
        (None, ""),
        ((), ""),
        ([("anna", 1)], "busy: anna, 1.0 GiB"),
        ([("anna", 1), ("anna", 2)], "busy: anna, 3.0 GiB"),
        ([("me", 1)], "in use by you, 1.0 GiB"),
        ([("me", 1), ("anna", None)], "busy: you, 1.0 GiB; anna"),
        ([(None, 2)], "busy: process 7, 2.0 GiB"),
        ([(None, 2), ("anna", 1), (None, 3)], "busy: 2 processes, 5.0 GiB; anna, 1.0 GiB"),
    ],
)
def test_row_names_other_users(held: list[tuple[str | None, int | None]] | None, received: str) -> None:
    processes = held and tuple(GpuProcess(pid=7, user=user, memory_used_bytes=gib and gib << 30) for user, gib in held)
    assert device_format.describe_use(processes or None, me="me") == received  # type: ignore[arg-type]


def test_row_graphs_describe_latest_value(panel: DevicesPanel) -> None:
    show_snapshot(panel, snapshot(gpu(0)))
    show_snapshot(panel, snapshot(gpu(0, utilization_percent=None), time=1_700_000_001.0))
    received = {graph.accessibleName(): graph.accessibleDescription() for graph in panel.findChildren(Sparkline)}
    assert received["GPU 1 utilization"].startswith("Latest: –%")
    assert received["CPU utilization"].startswith("Latest: 37%")


def test_graph_shows_the_last_seconds(styled: QApplication, qtbot: QtBot) -> None:
    graph = Sparkline(120.0, lambda: "#ff0000")
    qtbot.addWidget(graph)
    graph.resize(62, 33)
    scheme = theme.colors()
    values = np.array([50.0, 150.0, np.nan, 0.0, 0.0])
    graph.set_data(np.array([0.0, 1000.0, 1060.0, 1090.0, 1120.0]), values)
    values[:] = 50.0  # the graph has a copy
    graph.set_data(np.empty(0), np.empty(0))  # changes nothing
    graph.set_description("load", "0%")
    assert (graph.accessibleName(), graph.accessibleDescription()) == ("load", "Latest: 0%, over 4 samples")
    image = graph.grab().toImage()
    colors = [image.pixelColor(x, y).name() for x, y in ((1, 1), (50, 31), (30, 31), (30, 16), (30, 0))]
    assert colors == ["#ff0000", "#ff0000", scheme.panel, scheme.grid, scheme.border]
    graph.set_data(np.array([0.0, 120.0]), np.array([100.0, 100.0]))
    image = graph.grab().toImage()
    assert image.pixelColor(30, 1).name() == "#ff0000"
    (fill,) = {image.pixelColor(x, 28).name() for x in (10, 30, 50)}
    assert fill not in (scheme.panel, "#ff0000")
    graph.setEnabled(False)
    assert graph.grab().toImage().pixelColor(30, 1).name() == scheme.muted
    graph.set_data(np.array([0.0]), np.array([np.nan]))
    graph.set_description("load", "–%")
    assert graph.accessibleDescription() == "Latest: –%, nothing to show"


def test_memory_bar_is_as_long_as_the_used_fraction(panel: DevicesPanel, check: FindBox) -> None:
    def measure(name: str) -> float:
        image = row_of(check(name)).bar.grab().toImage()
        colors = [image.pixelColor(x, 1).name() for x in range(image.width())]
        return 1 - colors.count(theme.colors().border) / len(colors)

    assert measure("CPU") == 0.0
    for used, expected in ((47 << 30, 1 / 3), (200 << 30, 1.0), (None, 0.0)):
        show_snapshot(panel, snapshot(gpu(0, memory_used_bytes=used)))
        assert measure("GPU 1") == pytest.approx(expected, abs=0.01)


def test_row_leaves_out_unreported_quantities(panel: DevicesPanel, check: FindBox) -> None:
    show_snapshot(panel, snapshot(gpu(0, utilization_percent=None, temperature_c=None, memory_used_bytes=None)))
    row = row_of(check("GPU 1"))
    assert row.graph.isHidden()
    assert (row.load.text(), row.temperature.text(), row.note.text()) == ("", "", "")
    show_snapshot(panel, snapshot(gpu(0), time=1_700_000_001.0))
    assert not row.graph.isHidden()
    assert row.note.text() == "41.0 of 141.0 GiB"
    show_snapshot(panel, snapshot(gpu(0, utilization_percent=0.0, temperature_c=0.0), time=1_700_000_002.0))
    assert (row.load.text().strip(), row.temperature.text().strip()) == ("0%", "0 °C")


def test_row_of_lost_gpu_is_disabled(panel: DevicesPanel, check: FindBox) -> None:
    show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    show_snapshot(panel, snapshot(gpu(0), gpu(1, lost=True, lost_since=1_700_000_000.0)))
    assert "Lost since" in panel_text(panel)
    assert check("GPU 0").accessibleDescription().count("lost since") == 1
    graphs = {graph.accessibleName(): graph.isEnabled() for graph in panel.findChildren(Sparkline)}
    assert (graphs["GPU 0 utilization"], graphs["GPU 1 utilization"]) == (False, True)


def test_row_of_gpu_lost_before_start(panel: DevicesPanel) -> None:
    show_snapshot(panel, snapshot(gpu(0), Gpu(uuid="GPU-lost-1", name="NVIDIA GPU", nvml_index=1, lost=True)))
    assert "⚠ Lost" in panel_text(panel)
    (box,) = (each for each in panel.findChildren(QCheckBox) if "GPU-lost-1" in each.accessibleDescription())
    assert box.accessibleName().startswith("GPU 1")
    assert "lost" in box.accessibleDescription()


def test_mig_instances_follow_gpu(panel: DevicesPanel) -> None:
    parent = gpu(0, cuda_index=None, mig_enabled=True)
    instances = [
        gpu(0, uuid=f"MIG-{n}", cuda_index=None, mig=Mig(parent_uuid=parent.uuid, gpu_instance=n)) for n in (9, 7)
    ]
    show_snapshot(panel, snapshot(instances[0], parent, instances[1]))
    names = [box.text() for box in panel.findChildren(QCheckBox)]
    assert [name for name in names if name != "CPU"] == ["GPU 0 (MIG)", "GPU 0 MIG 7", "GPU 0 MIG 9"]
    assert panel.selection() == ("MIG-7",)  # the GPU itself cannot be trained on


@pytest.mark.parametrize("sentence", ["The NVIDIA driver is not loaded.", ""])
def test_panel_explains_missing_gpus(panel: DevicesPanel, sentence: str) -> None:
    show_snapshot(panel, snapshot(status="no_driver" if sentence else "ok", message=sentence))
    assert (sentence or "No NVIDIA GPU") in panel_text(panel)
    assert panel.selection() == (CPU,)


def test_cpu_counts_once_per_worker(panel: DevicesPanel, check: FindBox, qtbot: QtBot) -> None:
    show_snapshot(panel, snapshot())
    workers = next(box for box in panel.findChildren(QSpinBox) if box.accessibleName() == "CPU workers")
    assert (workers.minimum(), workers.maximum()) == (1, 2 * (os.cpu_count() or 1))
    with qtbot.waitSignal(panel.selection_changed):
        workers.setValue(2)
    assert panel.selection() == (CPU, CPU)
    with qtbot.waitSignal(panel.selection_changed):
        check("CPU").setChecked(False)
    assert panel.selection() == ()
    assert not workers.isVisible()


def test_row_has_the_color_of_its_device(panel: DevicesPanel, check: FindBox) -> None:
    for second in range(3):
        show_snapshot(panel, snapshot(gpu(0), gpu(1), time=1_700_000_000.0 + second))
    colors = [theme.device_color(uuid) for uuid in UUIDS[:2]]
    assert colors[0] != colors[1]
    for name, color, other in (("GPU 1", *colors), ("GPU 0", *colors[::-1])):
        row = row_of(check(name))
        for painted in (describe_painting(row.graph), describe_painting(row.bar)):
            assert color in painted
            assert other not in painted


def test_rows_follow_gpus_that_come_and_go(panel: DevicesPanel, qtbot: QtBot) -> None:
    def visible() -> list[str]:
        boxes = [box for box in panel.findChildren(QCheckBox) if box.isVisible()]
        return [box.text() for box in sorted(boxes, key=lambda box: box.mapTo(panel, QPoint()).y())]

    show_snapshot(panel, snapshot(gpu(0), gpu(2, cuda_index=2)))
    panel.set_selection((UUIDS[2],))
    show_snapshot(panel, snapshot(gpu(0), gpu(1), gpu(2, cuda_index=2), time=1_700_000_001.0))
    qtbot.waitUntil(lambda: visible() == ["GPU 0", "GPU 1", "GPU 2", "CPU"])
    assert panel.selection() == (UUIDS[2],)
    show_snapshot(panel, snapshot(gpu(0), gpu(2, cuda_index=2), time=1_700_000_002.0))
    qtbot.waitUntil(lambda: visible() == ["GPU 1", "GPU 2", "CPU"])
    busy = gpu(0, processes=held_by("anna", 1 << 30))
    show_snapshot(panel, snapshot(busy, gpu(2, cuda_index=2), time=1_700_000_003.0))
    find_button(panel, "Free").click()
    assert panel.selection() == (UUIDS[2],)


def test_default_is_first_idle_gpu(panel: DevicesPanel) -> None:
    show_snapshot(panel, snapshot(gpu(0), gpu(1, processes=held_by("root", 1))))
    assert panel.selection() == (UUIDS[0],)


def test_choice_survives_snapshot(panel: DevicesPanel, qtbot: QtBot) -> None:
    panel.set_selection((CPU, CPU))
    with qtbot.assertNotEmitted(panel.selection_changed):
        show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    assert panel.selection() == (CPU, CPU)


def test_users_choice_precedes_the_default(panel: DevicesPanel, check: FindBox) -> None:
    check("CPU").click()
    show_snapshot(panel, snapshot(gpu(0)))
    assert panel.selection() == ()
    panel.set_selection((CPU,) * 999)
    assert panel.selection() == (CPU,) * 999


def test_all_usable_gpus_are_chosen_once_they_are_known(panel: DevicesPanel) -> None:
    panel.choose_all_gpus()
    gpus = (gpu(0), gpu(1), gpu(2, lost=True))
    for time in (1_700_000_000.0, 1_700_000_001.0):
        show_snapshot(panel, snapshot(*gpus, time=time))
        assert panel.selection() == ((UUIDS[1], UUIDS[0]) if time == 1_700_000_000.0 else ())
        find_button(panel, "None").click()
    panel.choose_all_gpus()
    assert panel.selection() == (UUIDS[1], UUIDS[0])


def test_choice_of_unknown_gpu_is_applied_later(panel: DevicesPanel) -> None:
    panel.set_selection((UUIDS[1],))
    assert panel.selection() == (UUIDS[1],)
    show_snapshot(panel, snapshot(status="not_answering", message="NVML is not answering."))
    assert panel.selection() == (UUIDS[1],)
    show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    assert panel.selection() == (UUIDS[1],)


def test_choice_of_partly_unknown_gpus_is_complete(panel: DevicesPanel) -> None:
    panel.set_selection((UUIDS[1], UUIDS[2]))
    silent = snapshot(gpu(0), gpu(1), status="not_answering", message="NVML is not answering.")
    show_snapshot(panel, silent)
    assert panel.selection() == (UUIDS[1], UUIDS[2])
    show_snapshot(panel, snapshot(gpu(0), gpu(1), gpu(2, cuda_index=2), time=1_700_000_001.0))
    assert panel.selection() == (UUIDS[1], UUIDS[2])


def test_choice_of_missing_gpu_is_dropped(panel: DevicesPanel, qtbot: QtBot) -> None:
    panel.set_selection((UUIDS[5],))
    with qtbot.waitSignal(panel.selection_changed):
        show_snapshot(panel, snapshot(gpu(0)))
    assert panel.selection() == ()


def test_devices_are_chosen_by_keyboard(panel: DevicesPanel, check: FindBox, qtbot: QtBot) -> None:
    show_snapshot(panel, snapshot(gpu(0), gpu(1)))
    panel.set_selection(())
    qtbot.waitUntil(check("GPU 1").isVisible)
    check("GPU 0").setFocus()
    qtbot.keyClick(check("GPU 0"), Qt.Key.Key_Space)
    qtbot.keyClick(check("GPU 0"), Qt.Key.Key_Tab)
    assert panel.focusWidget() is check("GPU 1")
    qtbot.keyClick(check("GPU 1"), Qt.Key.Key_Space)
    qtbot.keyClick(check("GPU 1"), Qt.Key.Key_Tab)
    assert panel.focusWidget() is check("CPU")
    assert panel.selection() == (UUIDS[1], UUIDS[0])
    qtbot.keyClick(check("CPU"), Qt.Key.Key_Space)
    qtbot.keyClick(check("CPU"), Qt.Key.Key_Tab)
    assert panel.focusWidget().accessibleName() == "CPU workers"


def test_remote_devices_are_chosen_while_reachable(panel: DevicesPanel, check: FindBox, qtbot: QtBot) -> None:
    panel.set_hosts(("ws1", "ws2"))
    assert "Connecting to ws1…" in panel_text(panel)
    show_snapshot(panel, snapshot(gpu(0)))
    show_snapshot(panel, snapshot(gpu(0), gpu(1)), "ws1")
    panel.set_selection(("ws1:cpu", f"ws1:{UUIDS[0]}", UUIDS[0], "ws1:cpu"))
    assert panel.selection() == (UUIDS[0], f"ws1:{UUIDS[0]}", "ws1:cpu", "ws1:cpu")
    panel.show_error("ws1 does not respond.", "ws1")
    panel.show_error("ws2 does not respond.", "ws2")
    assert {"ws1 does not respond.", "ws2 does not respond."} <= {*panel_text(panel).splitlines()}
    assert [check(name).isEnabled() for name in ("ws1 GPU 0", "ws1 GPU 1", "ws1 CPU", "GPU 1")] == [
        False,
        True,
        True,
        True,
    ]
    assert not check("ws2 CPU").isVisible()
    buttons = [each for each in panel.findChildren(QToolButton) if "ws1" in each.accessibleName()]
    assert [each.isEnabled() for each in buttons] == [False] * 3
    check("ws1 GPU 1").click()
    check("ws1 CPU").click()
    assert panel.selection() == (UUIDS[0],)
    assert not check("ws1 CPU").isEnabled()
    show_snapshot(panel, snapshot(gpu(0), gpu(1), time=1_700_000_001.0), "ws1")
    assert all(each.isEnabled() for each in buttons)
    workers = next(box for box in panel.findChildren(QSpinBox) if box.accessibleName() == "ws1 CPU workers")
    assert workers.maximum() == 2 * len(CORES)
    check("ws1 CPU").click()
    with qtbot.waitSignal(panel.selection_changed):
        panel.set_hosts(("ws2",))
    assert panel.selection() == (UUIDS[0],)
