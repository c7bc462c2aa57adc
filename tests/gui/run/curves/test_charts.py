"""Plots of a run: metrics of each task, choice of plots, their order and size."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from PySide6.QtCore import QModelIndex, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from engine.contract.devices import DeviceSample
from engine.contract.events import DevicesSampled, RunDevice, Validation
from gui.run.curves.charts import RunCharts, device_titles
from gui.run.curves.plot_rows import PlotList, PlotRows
from gui.sources.run_data import RunData
from gui.sources.settings import Settings
from gui.style import theme
from tests.gui.run.evaluated_run import events
from tests.gui.sources.written_runs import job, write_run
from tests.support.plots import get_horizontal_range, get_vertical_range
from tests.support.run_data import make_run_data
from tests.support.widgets import OpenWindow, ShowWidget


@pytest.fixture
def charts(styled: QApplication, qtbot: QtBot) -> RunCharts:
    created = RunCharts()
    qtbot.addWidget(created)
    return created


def make_charted_data(task: str, **options: bool) -> RunData:
    """Return the data of a run for `task`, whose validations have two additional metrics with values above 1 and below 0.

    `options` are passed to `events`. With `measures=False`, the additional metrics are left out.
    """
    written = (
        structs.replace(event, measures={"count": 7.5, "gain": -0.5} | event.measures)
        if isinstance(event, Validation) and options.get("measures", True)
        else event
        for event in events(job(task=task), **options)
    )
    return make_run_data(written)


@pytest.mark.parametrize(
    ("task", "options", "title", "latest"),
    [
        ("classification", {}, "Accuracy", "training 100.0%, top-1 80.0%"),
        ("classification", {"accuracy": False}, "Metrics", "top-1 80.0%"),
        ("one's own", {}, "Accuracy", "training 100.0%, top1 80.0%, top5 99.0%"),
        ("one's own", {"accuracy": False}, "Metrics", "top1 80.0%, top5 99.0%"),
        ("one's own", {"measures": False}, "Accuracy", "training 100.0%"),
        ("custom", {"accuracy": False}, "Metrics", "top1 80.0%, top5 99.0%"),
    ],
)
def test_charts_show_accuracy_and_percentages(
    charts: RunCharts, task: str, options: dict[str, bool], title: str, latest: str
) -> None:
    charts.show_data(make_charted_data(task, **options))
    plot = charts.accuracy
    assert plot.title == plot.accessibleName() == title
    assert title in [label.text() for label in plot.findChildren(QLabel)]
    assert plot.describe() == f"Latest: {latest}"
    assert not plot.isHidden()
    charts.reset()
    assert plot.title == "Accuracy"
    assert latest not in plot.describe()


def test_charts_hide_accuracy_plot_without_metrics(charts: RunCharts) -> None:
    charts.show_data(make_charted_data("one's own", accuracy=False, measures=False))
    assert charts.accuracy.isHidden()
    charts.reset()
    assert not charts.accuracy.isHidden()


def test_charts_smooth_a_later_accuracy(charts: RunCharts) -> None:
    data = make_charted_data("classification")
    charts.set_smoothing(0.9)
    charts.show_data(data)
    assert charts.times.describe() == "Latest: data wait 2.0 ms, compute 40.0 ms"
    smoothed = charts.accuracy.describe()
    charts.set_smoothing(0.0)
    assert charts.accuracy.describe() != smoothed


def test_charts_show_power_that_one_of_the_devices_reports(charts: RunCharts) -> None:
    samples = (DeviceSample(device="cpu"), DeviceSample(device="GPU-a", power_w=300.0, temperature_c=60.0))
    started, *rest = events(job(devices=("GPU-a", "cpu")))
    late = (structs.replace(event, time=event.time + 50) if isinstance(event, Validation) else event for event in rest)
    sampled = DevicesSampled(time=started.time + 9, samples=samples)
    charts.show_data(make_run_data([started, sampled]))
    assert charts.group.extent == (0.0, pytest.approx(9.0))
    charts.show_data(make_run_data([started], late, [sampled]))
    assert not charts.devices["power_w"].isHidden()
    texts = [charts.devices[quantity].describe() for quantity in ("power_w", "temperature_c")]
    assert texts == ["Latest: H200 300 W", "Latest: H200 60 °C"]
    assert charts.group.range[1] > 50
    charts.group.show_range(1.0, 2.0)
    assert not charts.group.following
    charts.reset()
    assert charts.group.following
    assert charts.devices["power_w"].isHidden()


def test_devices_of_the_same_name_are_numbered() -> None:
    names = {
        "GPU-a": "NVIDIA H200",
        "GPU-b": "NVIDIA L4",
        "GPU-c": "NVIDIA H200",
        "cpu": "AMD EPYC",
        "tower:cpu": "AMD EPYC",
    }
    devices = tuple(RunDevice(id=device, name=name, ranks=(0,)) for device, name in names.items())
    started = next(events(job(devices=tuple(names))))
    titles = device_titles(make_run_data([structs.replace(started, devices=devices)]))
    assert titles == {"GPU-a": "device 0", "GPU-b": "L4", "GPU-c": "device 2", "cpu": "CPU", "tower:cpu": "tower CPU"}


def test_charts_of_ended_run_promise_no_data(charts: RunCharts) -> None:
    started, *_, finished = events(job())
    charts.show_data(make_run_data([started]))
    assert charts.loss.describe() == "Appears after the first steps"
    charts.show_data(make_run_data([started, finished]))
    assert {plot.describe() for plot in charts.plots} == {
        "The run ended before its first step",
        "No samples of the run's devices",
    }


def test_charts_of_queued_run_drop_axes_of_previous_run(show_widget: ShowWidget, qtbot: QtBot) -> None:
    charts = show_widget(RunCharts(), 800, 600)
    data = make_charted_data("classification")
    data.rollbacks = 1
    charts.show_data(data)
    qtbot.waitUntil(lambda: get_vertical_range(charts.loss) != (0.0, 1.0))
    charts.show_data(data)
    assert get_vertical_range(charts.loss) != (0.0, 1.0)  # it wasn't cleared again
    assert max(get_vertical_range(charts.speed)[0], get_vertical_range(charts.times)[0]) <= 0
    charts.reset()
    charts.show_data(make_run_data([next(events(job()))]))
    assert get_vertical_range(charts.loss) == get_vertical_range(charts.speed) == (0.0, 1.0)
    assert get_horizontal_range(charts.loss) == (0.0, 1.04)


@pytest.mark.usefixtures("normal_text")
@pytest.mark.parametrize("text_percent", [100, 150, 200])
def test_loss_and_utilization_are_visible_together(open_window: OpenWindow, qtbot: QtBot, text_percent: int) -> None:
    window = open_window()
    theme.choose("system", text_percent)
    window.resize(1280, 800)
    window.show_run(write_run(80))
    page = window.workspace.run
    qtbot.waitUntil(page.next_steps.isVisible)

    def are_visible() -> bool:
        plots = (page.charts.loss, page.charts.devices["utilization_percent"])
        return all(plot.isVisible() and plot.visibleRegion().boundingRect() == plot.rect() for plot in plots)

    qtbot.waitUntil(are_visible)


def list_visible_plots(rows: PlotRows) -> list[str]:
    """Return the names of the visible plots from left to right and top to bottom."""
    positions = [
        (plot.mapTo(rows, QPoint()).toTuple()[::-1], name) for name, plot in rows.plots.items() if plot.isVisible()
    ]
    return [name for _, name in sorted(positions)]


def test_plot_rows_are_chosen_ordered_and_enlarged(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.resize(1280, 800)
    window.show_run(write_run(80))
    page = window.workspace.run
    qtbot.waitUntil(page.next_steps.isVisible)
    charts = page.charts
    loss, rows = charts.loss, charts.rows
    qtbot.waitUntil(lambda: loss.height() >= 0.45 * window.height())
    assert loss.mapTo(window, loss.rect().bottomLeft()).y() < window.height(), "all of it is in sight"
    qtbot.waitUntil(lambda: list_visible_plots(rows)[:2] == ["loss", "accuracy"])
    assert "power_w" not in list_visible_plots(rows), "the CPU tells none"

    chooser = PlotList(rows)
    qtbot.addWidget(chooser)
    chooser.chosen.connect(rows.choose)
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_Up, Qt.Key.Key_Down):
        qtbot.keyClick(chooser, key, Qt.KeyboardModifier.AltModifier)
    chooser.item(rows.order.index("times")).setCheckState(Qt.CheckState.Unchecked)
    qtbot.waitUntil(lambda: list_visible_plots(rows)[:2] == ["accuracy", "loss"])
    assert "times" not in list_visible_plots(rows)
    qtbot.waitUntil(lambda: charts.accuracy.height() >= 0.45 * window.height())
    restored = PlotRows({name: type(loss)(name, charts.group) for name in rows.plots}, window.settings)
    qtbot.addWidget(restored)
    assert (restored.order, restored.chosen) == (rows.order, rows.chosen)

    charts.speed.setFocus()
    qtbot.keyClick(charts.speed, Qt.Key.Key_Return)
    rows.enlarge_requested.emit("loss")  # only one at a time
    qtbot.waitUntil(lambda: charts.speed.height() > 0.6 * window.height() and not loss.isVisible())
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: loss.isVisible() and charts.speed.height() < 0.4 * window.height())
    assert "speed" in list_visible_plots(rows)
    qtbot.waitUntil(charts.speed.hasFocus)
    qtbot.keyClick(charts.speed, Qt.Key.Key_Enter)
    qtbot.waitUntil(lambda: not loss.isVisible())


def test_plot_rows_have_three_plots_on_wide_screens_and_new_plots_last(show_widget: ShowWidget, tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    settings.set("run_plots", "speed -loss gone")
    charts = show_widget(RunCharts(settings), 1600, 900)
    rows = charts.rows
    assert rows.order == ["speed", "loss", *(name for name in rows.plots if name not in ("speed", "loss"))]
    assert rows.chosen == rows.plots.keys() - {"loss"}
    assert list_visible_plots(rows)[:1] == ["speed"]
    heights = [rows.plots[name].mapTo(rows, QPoint()).y() for name in list_visible_plots(rows)]
    assert [heights.count(height) for height in sorted(set(heights))] == [1, 3, 1]
    chooser = PlotList(rows)
    checked = [chooser.item(row).checkState() == Qt.CheckState.Checked for row in range(3)]
    assert (checked, chooser.currentRow()) == ([True, False, True], 0)
    QTest.keyClick(chooser, Qt.Key.Key_Down)  # without Alt, it only selects
    assert [item.data(Qt.ItemDataRole.UserRole) for item in map(chooser.item, (0, 1))] == ["speed", "loss"]
    for row, key in ((0, Qt.Key.Key_Up), (chooser.count() - 1, Qt.Key.Key_Down)):
        chooser.setCurrentRow(row)
        QTest.keyClick(chooser, key, Qt.KeyboardModifier.AltModifier)
        assert [chooser.item(each).data(Qt.ItemDataRole.UserRole) for each in range(chooser.count())] == rows.order
    chooser.chosen.connect(rows.choose)
    chooser.model().moveRow(QModelIndex(), 0, QModelIndex(), 2)  # as dragging does
    assert rows.order[:2] == ["loss", "speed"]
    chooser.setCurrentRow(1)
    for _ in range(2):
        QTest.keyClick(chooser, Qt.Key.Key_Down, Qt.KeyboardModifier.AltModifier)
    assert (rows.order.index("speed"), chooser.currentRow()) == (3, 3)
    rows.choose(rows.order, {"loss"})
    rows.set_visible_height(300)
    assert rows.plots["loss"].minimumHeight() == 414  # 46% of the window, since no second row needs space
