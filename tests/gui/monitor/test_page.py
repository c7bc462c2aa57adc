"""Monitor page."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.devices import Mig, Nvml, SnapshotRequest, device_key
from gui.alerts.view import AlertsView
from gui.format import clock
from gui.monitor.gpus.view import GpusView
from gui.monitor.graphs import GraphsView
from gui.monitor.hosts import HostDialog, list_host_errors
from gui.monitor.page import MonitorPage
from gui.monitor.processes.view import ProcessesView
from gui.monitor.toolbar import ALERTS, GPUS, GRAPHS, PROCESSES, SPANS, TOPOLOGY
from gui.monitor.topology.view import TopologyView
from gui.plots.group import Mark
from gui.plots.plot import LinePlot
from gui.sources.run_intervals import RunInterval
from gui.sources.settings import Settings
from gui.style import theme
from tests.gui.monitor.watching import START, Watching, full_gpu, plain_gpu
from tests.gui.sources.devices.snapshots import snapshot


def test_page_tabs_open_views(watching: Watching, qtbot: QtBot) -> None:
    page = watching.page
    watching.deliver(full_gpu())
    kinds = {GPUS: GpusView, GRAPHS: GraphsView, PROCESSES: ProcessesView, TOPOLOGY: TopologyView, ALERTS: AlertsView}
    for view, kind in kinds.items():
        page.bar.tabs.setCurrentIndex(view)
        assert isinstance(page.view, kind)
        assert page.view.isVisible()
        if view == PROCESSES:
            with qtbot.waitSignal(page.stop_run) as stopped:
                page.view.stop_run.emit("a-run")
            assert stopped.args == ["a-run"]
    alerts = page.view
    qtbot.keyClick(page.bar.tabs, Qt.Key.Key_Left)
    assert isinstance(page.view, TopologyView)
    page.show_view(ALERTS)
    assert page.view is alerts


def test_page_requests_visible_readings(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    page = watching.page
    requests: list[SnapshotRequest] = []
    monkeypatch.setattr(watching.hosts.local, "set_request", requests.append)
    watching.deliver(full_gpu())
    page.set_panel_visible(False)
    assert requests[-1] == SnapshotRequest(processes=True, activity=True, details=True)
    page.bar.compact.click()
    assert requests[-1] == SnapshotRequest(processes=True, activity=False, details=True)
    watching.deliver(full_gpu(), plain_gpu(1, mig=Mig(parent_uuid=full_gpu().uuid, gpu_instance=1)))
    assert requests[-1] == SnapshotRequest(processes=True, activity=True, details=True)
    page.bar.compact.click()
    page.show_view(GRAPHS)
    assert requests[-1] == SnapshotRequest(processes=False, activity=True, details=True)
    page.graphs.checks["sm_active_percent"].click()
    assert requests[-1] == SnapshotRequest(processes=False, activity=False, details=True)
    page.show_view(PROCESSES)
    assert requests[-1] == SnapshotRequest(processes=True, activity=False, details=True)
    page.hide()
    assert requests[-1] == SnapshotRequest(processes=False, activity=False, details=False)
    page.set_panel_visible(True)
    assert requests[-1] == SnapshotRequest(processes=True, activity=False, details=False)


def test_page_span_choice(watching: Watching, qtbot: QtBot) -> None:
    for second in range(0, 4000, 100):
        watching.deliver(full_gpu(), at=second)
    page = watching.page
    assert page.group.range == (3300.0, 3900.0)
    page.bar.span.setCurrentIndex(1)
    page.bar.span.activated.emit(1)
    assert page.group.range == (300.0, 3900.0)
    assert [seconds for _, seconds in SPANS] == [600, 3600, 21_600, 86_400]


def test_page_zoom_stays_until_newest(watching: Watching, qtbot: QtBot) -> None:
    for second in range(0, 900, 10):
        watching.deliver(full_gpu(), at=second)
    page = watching.page
    (tile,) = page.gpus.tiles.tiles.values()
    assert not page.bar.newest.isVisible()
    qtbot.keyClick(tile.plot, Qt.Key.Key_Plus)
    zoomed = page.group.range
    assert page.bar.past.isVisible()
    assert all(clock(START + limit) in page.bar.past.text() for limit in zoomed)
    watching.deliver(full_gpu(), at=900)
    assert page.group.range == zoomed
    for view, has_graphs in ((PROCESSES, False), (GRAPHS, True), (TOPOLOGY, False), (GPUS, True)):
        page.show_view(view)
        assert (page.bar.newest.isVisible(), page.bar.past.isVisible()) == (has_graphs, has_graphs)
    page.bar.newest.click()
    assert page.group.range == (300.0, 900.0)
    for view in (GPUS, GRAPHS):
        page.show_view(view)
        assert not page.bar.newest.isVisible()
        assert not page.bar.past.isVisible()


def test_page_marks_runs(watching: Watching) -> None:
    watching.deliver(full_gpu(0), full_gpu(1))
    watching.intervals.intervals = (
        RunInterval("r1", "flowers", (full_gpu(0).uuid,), "finished", START - 50, START - 20),
        RunInterval("r2", "birds", (full_gpu(1).uuid,), "running", START - 10),
        RunInterval("r3", "cars", (), "waiting", START - 5),
    )
    watching.intervals.changed.emit()
    watching.page.refresh()
    marks: tuple[Mark, ...] = watching.page.group.marks
    assert [(mark.x, mark.label, mark.ends) for mark in marks] == [
        (-50.0, "flowers", False),
        (-20.0, "flowers: finished", True),
        (-10.0, "birds", False),
    ]
    assert [mark.of for mark in marks] == [frozenset({full_gpu(number).uuid}) for number in (0, 0, 1)]
    assert [mark.color() for mark in marks[::2]] == [theme.device_color(full_gpu(number).uuid) for number in (0, 1)]
    used_tile = watching.page.gpus.tiles.tiles[full_gpu(1).uuid]
    assert used_tile.who.text() == "Run birds"
    assert watching.page.gpus.tiles.tiles[full_gpu(0).uuid].who.text() == ""


def test_page_marks_runs_on_their_devices(watching: Watching, qtbot: QtBot) -> None:
    for second in range(60):
        watching.deliver(full_gpu(0), full_gpu(1), at=second)
        watching.deliver(full_gpu(0), at=second, host="ws2")
    watching.intervals.intervals = (
        RunInterval("r1", "flowers", (full_gpu(1).uuid,), "running", START + 10),
        RunInterval("r2", "birds", ("cpu",), "running", START + 20),
        RunInterval("r3", "cars", (full_gpu(0).uuid, full_gpu(1).uuid), "running", START + 30),
    )
    watching.intervals.changed.emit()
    watching.page.refresh()

    def read_markers(plot: LinePlot) -> tuple[list[str], list[str]]:
        """Return the labels of all markers in a plot, and the labels that are visible."""
        plot.redraw()
        annotations = plot._view.annotations
        return [mark.label for mark in annotations.marks], sorted(mark.label for mark in annotations.named)

    tiles = watching.page.gpus.tiles.tiles
    assert watching.page.group.marks[-1].color() == theme.colors().accent  # cars, on two GPUs
    assert read_markers(tiles[full_gpu(0).uuid].plot) == (["cars"], ["cars"])
    assert read_markers(tiles[full_gpu(1).uuid].plot) == (["flowers", "cars"], ["flowers"])
    assert read_markers(tiles[device_key("ws2", full_gpu(0).uuid)].plot) == ([], [])
    watching.page.show_view(GRAPHS)
    plots = watching.page.graphs.plots
    qtbot.waitUntil(plots["power_w"].isVisible)
    assert read_markers(plots["utilization_percent"]) == (["flowers", "birds", "cars"], ["birds", "cars", "flowers"])
    assert read_markers(plots["power_w"]) == (["flowers", "cars"], [])


def test_page_reports_unreadable_run(watching: Watching) -> None:
    watching.deliver(full_gpu(0))
    watching.intervals.unread = {"20260101-a-run": "a fault"}
    watching.intervals.changed.emit()
    watching.page.refresh()
    assert watching.page.errors.text() == "20260101-a-run can't be read: a fault."
    watching.hosts.errors["ws2"] = "ws2 is off."
    watching.page.refresh()
    assert watching.page.errors.text() == "ws2 is off.\n20260101-a-run can't be read: a fault."


def test_page_reports_host_error(watching: Watching) -> None:
    page = watching.page
    watching.deliver(full_gpu(0))
    watching.deliver(full_gpu(0), host="ws2")
    assert page.errors.isHidden()
    watching.hosts.errors["ws2"] = "ws2 can't be reached: connection refused."
    page.refresh()
    assert page.errors.isVisible()
    assert page.errors.text() == "ws2 can't be reached: connection refused."
    silent = page.gpus.tiles.tiles[f"ws2:{full_gpu(0).uuid}"]
    assert silent.state.text() == f"⚠ No data since {clock(START)}"
    assert silent.title.text() == "ws2 GPU 0"
    assert "No news" not in page.gpus.tiles.tiles[full_gpu(0).uuid].state.text()
    watching.hosts.errors.clear()
    page.refresh()
    assert page.errors.isHidden()


def test_errors_name_their_host_once_and_begin_with_this_machine() -> None:
    silent = snapshot(status="no_driver", message="The driver is not loaded.")
    latest = {"ws3": snapshot(), "ws2": snapshot(), "": silent, "ws4": silent}
    assert list_host_errors(latest, {"ws2": "ws2 is off.", "a": "Refused."}) == [
        "The driver is not loaded.",
        "a: Refused.",
        "ws2 is off.",
        "ws4: The driver is not loaded.",
    ]


def test_page_reports_silent_nvml(watching: Watching) -> None:
    watching.deliver(full_gpu(0))
    watching.deliver(full_gpu(0), at=9, nvml=Nvml("not_answering", "NVML has not answered for 9 s."))
    assert watching.page.errors.text() == "NVML has not answered for 9 s."
    (tile,) = watching.page.gpus.tiles.tiles.values()
    assert tile.state.text().startswith("⚠")
    watching.deliver(full_gpu(0), at=10)
    assert watching.page.errors.isHidden()
    assert not tile.state.text().startswith("⚠")


def test_page_without_gpus(watching: Watching) -> None:
    empty = watching.page.gpus.empty
    texts = [empty.text()]
    for nvml in (Nvml("not_answering", "NVML has been asked."), Nvml("ok")):  # the first is not an error yet
        watching.deliver(nvml=nvml)
        assert empty.isVisible()
        assert watching.page.errors.isHidden()
        texts.append(empty.text())
    assert len(set(texts)) == 3
    assert "NVML has been asked." in texts[1]
    assert "No NVIDIA GPU is installed" in texts[2]


def test_page_keeps_gpus_while_sampler_restarts(watching: Watching) -> None:
    watching.deliver(full_gpu(0))
    watching.deliver(at=5, nvml=Nvml("not_answering", "NVML has been asked."))
    watching.deliver(at=6, nvml=Nvml("not_answering", "NVML has been asked."))
    (tile,) = watching.page.gpus.tiles.tiles.values()
    assert watching.page.gpus.currentWidget() is watching.page.gpus.tiles
    assert tile.state.text().startswith("⚠")
    watching.deliver(nvml=Nvml("no_driver", "The NVIDIA driver is not loaded."), at=7)
    assert watching.page.gpus.empty.isVisible()
    assert "No GPU of this machine can be monitored" in watching.page.gpus.empty.text()
    assert watching.page.errors.text() == "The NVIDIA driver is not loaded."


def test_host_dialog_adds_and_removes_hosts(watching: Watching, qtbot: QtBot) -> None:
    page, hosts = watching.page, watching.hosts
    page.bar.hosts.click()
    (dialog,) = page.findChildren(HostDialog)
    assert dialog.isVisible()
    assert not dialog.isModal()
    qtbot.keyClicks(dialog.name, "-oProxyCommand=evil")
    qtbot.keyClick(dialog.name, Qt.Key.Key_Return)
    assert hosts.names == ()
    assert dialog.problem.isVisible()
    assert dialog.problem.text()
    dialog.name.clear()
    qtbot.keyClicks(dialog.name, " anna@ws2 ")
    assert dialog.problem.isHidden()
    dialog.add.click()
    assert (hosts.names, dialog.name.text()) == (("anna@ws2",), "")
    assert dialog.states() == {"anna@ws2": "connecting…"}
    watching.deliver(full_gpu(0), host="anna@ws2")
    assert dialog.states() == {"anna@ws2": "connected: 1 GPU"}
    hosts.add("ws3")

    def list_rows() -> list[str]:
        """Return the names of the visible buttons that remove a host, from top to bottom."""
        buttons = [button for button in dialog.findChildren(QPushButton) if button.isVisible()]
        buttons.sort(key=lambda button: button.mapTo(dialog, QPoint()).y())
        return [name for button in buttons if (name := button.accessibleName()).startswith("Stop watching")]

    qtbot.waitUntil(lambda: list_rows() == ["Stop watching anna@ws2", "Stop watching ws3"])
    hosts.remove("ws3")
    hosts.errors["anna@ws2"] = "anna@ws2 can't be reached."
    hosts.error_changed.emit("anna@ws2", hosts.errors["anna@ws2"])
    assert dialog.states() == {"anna@ws2": "⚠ anna@ws2 can't be reached."}
    assert [label.text() for label in dialog.findChildren(QLabel, "warning")] == [*dialog.states().values()]
    name = "Stop watching anna@ws2"
    remove = next(button for button in dialog.findChildren(QPushButton) if button.accessibleName() == name)
    remove.click()
    assert hosts.names == ()
    assert dialog.states() == {}


def test_page_saves_csv(watching: Watching, tmp_path: Path, qtbot: QtBot) -> None:
    for second in range(0, 1000, 10):
        watching.deliver(full_gpu(0), full_gpu(1), at=second)
    page = watching.page
    page.show_gpu(full_gpu(1).uuid)
    file = tmp_path / "numbers.csv"
    dialog = page.ask_csv(("vanished", *page.gpus.keys), START + 390, START + 990)
    with qtbot.waitSignal(page.message) as received:
        dialog.fileSelected.emit(str(file))
    dialog.close()
    assert received.args[1] == "info"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert len(rows) == 61
    assert {row["device"] for row in rows} == {full_gpu(1).uuid}
    assert {row["power_w"] for row in rows} == {"512"}
    dialog = page.ask_csv(page.gpus.keys, START + 390, START + 990, ())  # no graph is checked
    with qtbot.waitSignal(page.message):
        dialog.fileSelected.emit(str(file))
    dialog.close()
    assert "power_w" not in file.read_text()


def test_page_menu_asks_for_csv_file(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0), at=-600)
    watching.deliver(full_gpu(0))
    watching.deliver(full_gpu(0), host="ws2")
    page = watching.page
    requests: list[tuple[object, ...]] = []
    page.ask_csv = lambda *args: requests.append(args)  # type: ignore[assignment,misc,return-value]
    page.bar.acts["csv"].trigger()
    page.show_view(GRAPHS)
    page.bar.acts["csv"].trigger()
    local, remote = (full_gpu(0).uuid, "cpu"), (f"ws2:{full_gpu(0).uuid}", "ws2:cpu")
    assert requests[0] == ((local[0], remote[0]), START - 600, START)
    assert requests[1] == (local + remote, START - 600, START, page.graphs.chosen)


def test_page_saves_image(watching: Watching, tmp_path: Path, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0))
    page = watching.page
    with qtbot.waitSignal(page.message) as received:
        page.ask_png(page.gpus).fileSelected.emit(str(tmp_path / "page.png"))
    assert received.args[1] == "info"
    image = QImage(str(tmp_path / "page.png"))
    assert (image.width(), image.height()) == (page.gpus.width(), page.gpus.height())
    kinds: list[str] = []
    page.message.connect(lambda _text, kind: kinds.append(kind))
    page.ask_png(page.gpus).fileSelected.emit(str(tmp_path / "nowhere" / "page.png"))
    assert kinds == ["warning"]


def test_page_alert_banner_opens_alerts(watching: Watching) -> None:
    hot = full_gpu(0, temperature_c=95.0)
    for second in range(0, 100, 5):
        watching.alerts.evaluate("", watching.deliver(hot, at=second), {})
    page = watching.page
    assert page.alert_banner.isVisible()
    next(button for button in page.alert_banner.findChildren(QPushButton) if button.text() == "Show").click()
    assert isinstance(page.view, AlertsView)


def test_page_choices_are_saved(watching: Watching, tmp_path: Path, qtbot: QtBot) -> None:
    watching.page.bar.compact.click()
    watching.page.bar.load.click()
    watching.page.bar.span.setCurrentIndex(2)
    watching.page.bar.span.activated.emit(2)
    again = MonitorPage(watching.hosts, watching.intervals, watching.alerts, Settings(tmp_path / "settings"))
    qtbot.addWidget(again)
    assert again.bar.compact.isChecked()
    assert again.bar.load.isChecked()
    assert again.bar.span.currentText() == "6 h"
    assert again.group.range == pytest.approx((-0.1 * 6 * 3600, 0.0))  # without data, a tenth of the span


def test_page_hidden_is_idle(watching: Watching) -> None:
    page = watching.page
    page.hide()
    watching.deliver(full_gpu(0))
    assert page.gpus.tiles.tiles == {}
    page.show()
    assert len(page.gpus.tiles.tiles) == 1


def test_page_shows_snapshot_immediately(watching: Watching, qtbot: QtBot) -> None:
    def values() -> str:
        return " ".join(tile.figures.text() for tile in watching.page.gpus.tiles.tiles.values())

    first = watching.deliver(full_gpu(0, power_w=100.0))
    other = full_gpu(0, power_w=200.0)
    later = msgspec.structs.replace(first, time=START + 1, gpus=(other,))

    watching.hosts.local.snapshot.emit(later)
    qtbot.waitUntil(lambda: "Power 200 of 700 W" in values())
