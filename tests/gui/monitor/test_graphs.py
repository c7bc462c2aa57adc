"""Graphs of GPU quantities, with one line per device."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

from engine.gpus.quantities import BY_ID
from gui.monitor.graphs import GraphsView
from gui.monitor.toolbar import GPUS, GRAPHS
from gui.sources.settings import Settings
from tests.gui.monitor.watching import START, Watching, full_gpu, plain_gpu
from tests.support.plots import get_horizontal_range, get_vertical_range


def graphs(watching: Watching) -> GraphsView:
    watching.page.show_view(GRAPHS)
    return watching.page.graphs


def test_graphs_have_line_per_device(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0), full_gpu(1, power_w=300.0))
    plot = graphs(watching).plots["power_w"]
    qtbot.waitUntil(lambda: plot.accessibleDescription() == "Latest: GPU 0 512 W, GPU 1 300 W")
    load = graphs(watching).plots["utilization_percent"]
    qtbot.waitUntil(lambda: "CPU 37%" in load.accessibleDescription())
    memory = graphs(watching).plots["memory_used_bytes"]
    qtbot.waitUntil(lambda: "GPU 0 41.0 GiB" in memory.accessibleDescription())


def test_graphs_offer_reported_quantities(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(plain_gpu(0, power_w=None))
    view = graphs(watching)
    assert set(view.checks) == {"utilization_percent", "memory_used_bytes", "temperature_c"}
    assert set(view.plots) == set(view.checks)
    watching.deliver(full_gpu(0), at=1)
    assert set(view.checks) == set(BY_ID)
    assert list(view.plots) != list(view.checks)

    def positions() -> list[tuple[int, int]]:
        return [(view.checks[name].y(), view.checks[name].x()) for name in BY_ID]

    qtbot.waitUntil(lambda: len(set(positions())) == len(BY_ID))
    assert positions() == sorted(positions())


def test_graphs_choice_is_saved(watching: Watching, tmp_path: Path, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0))
    view = graphs(watching)
    qtbot.waitUntil(view.plots["power_w"].isVisible)
    assert "fan_percent" not in view.plots
    with qtbot.waitSignal(view.chosen_changed):
        view.checks["power_w"].click()
    view.checks["fan_percent"].click()
    assert not view.plots["power_w"].isVisible()
    qtbot.waitUntil(lambda: "GPU 0 35%" in view.plots["fan_percent"].accessibleDescription())
    again = GraphsView(watching.history, watching.page.group, Settings(tmp_path / "settings"))
    qtbot.addWidget(again)
    assert again.chosen == view.chosen
    assert "fan_percent" in again.chosen
    assert "power_w" not in again.chosen
    for quantity in again.chosen:
        view.checks[quantity].click()
    empty = GraphsView(watching.history, watching.page.group, Settings(tmp_path / "settings"))
    qtbot.addWidget(empty)
    assert empty.chosen == ()


def test_graphs_follow_quantity_order(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0))
    view = graphs(watching)
    view.checks["memory_temperature_c"].click()  # its graph is placed before another one

    def tops() -> list[int]:
        return [view.plots[quantity].y() for quantity in BY_ID if quantity in view.plots]

    qtbot.waitUntil(lambda: len(set(tops())) == len(view.plots) == 6)
    assert tops() == sorted(tops())


def test_graphs_draw_common_temperature_limits(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0), full_gpu(1, slowdown_c=80.0), plain_gpu(2))
    view = graphs(watching)
    view.checks["memory_temperature_c"].click()

    def limits(quantity: str) -> list[str]:
        return [level.label for level in view.plots[quantity]._view.annotations.thresholds]

    assert limits("temperature_c") == ["shuts down 92 °C"]
    assert limits("memory_temperature_c") == ["allowed up to 95 °C"]
    qtbot.waitUntil(lambda: get_vertical_range(view.plots["memory_temperature_c"])[1] > 95)
    assert get_vertical_range(view.plots["temperature_c"])[1] > 92


def test_graphs_rename_lines(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0, cuda_index=None, utilization_percent=10.0))
    view = graphs(watching)
    plot, hidden = view.plots["utilization_percent"], view.plots["power_w"]
    qtbot.waitUntil(lambda: "GPU 0 10%" in plot.accessibleDescription())
    view.checks["power_w"].click()
    watching.deliver(full_gpu(0, cuda_index=5, utilization_percent=20.0), at=1)
    qtbot.waitUntil(lambda: "GPU 5 20%" in plot.accessibleDescription())
    assert "GPU 0" not in plot.accessibleDescription()
    view.checks["power_w"].click()
    qtbot.waitUntil(lambda: hidden.accessibleDescription() == "Latest: GPU 5 512 W")


def test_graphs_include_other_hosts(watching: Watching, qtbot: QtBot) -> None:
    watching.deliver(full_gpu(0, utilization_percent=10.0, power_w=None))
    watching.deliver(full_gpu(0, utilization_percent=20.0), host="ws2")
    load, power = (graphs(watching).plots[name] for name in ("utilization_percent", "power_w"))
    values = "GPU 0 10%, CPU 37%, ws2 GPU 0 20%, ws2 CPU 37%"
    qtbot.waitUntil(lambda: values in load.accessibleDescription())
    qtbot.waitUntil(lambda: power.accessibleDescription() == "Latest: ws2 GPU 0 512 W")


def test_graphs_share_time_and_crosshair(watching: Watching, qtbot: QtBot) -> None:
    for second in range(0, 700, 10):
        watching.deliver(full_gpu(0, power_w=float(second)), at=second)
    view = graphs(watching)
    qtbot.waitUntil(lambda: get_horizontal_range(view.plots["power_w"]) == (90.0, 690.0))
    watching.page.group.set_cursor(400.0)
    qtbot.waitUntil(lambda: "GPU 0 400 W" in view.plots["power_w"].accessibleDescription())
    watching.page.show_view(GPUS)
    (tile,) = watching.page.gpus.tiles.tiles.values()
    assert "Power 400 of 700 W" in tile.figures.text()
    assert watching.history.origin == START
