"""Plot of accuracy and metrics for tasks with either or neither."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.run.curves.charts import RunCharts
from gui.sources.run_data import RunData
from tests.gui.run.evaluated_run import events
from tests.gui.sources.written_runs import job
from tests.support.run_data import data_from


@pytest.fixture
def charts(styled: QApplication, qtbot: QtBot) -> RunCharts:
    made = RunCharts()
    qtbot.addWidget(made)
    return made


def data_of(task: str, **options: bool) -> RunData:
    return data_from(events(job(task=task), **options))


@pytest.mark.parametrize(
    ("task", "options", "title", "latest"),
    [
        ("classification", {}, "Accuracy", "training 100.0 %, validation top-1 80.0 %, validation top-5 99.0 %"),
        ("classification", {"accuracy": False}, "Metrics", "validation top-1 80.0 %, validation top-5 99.0 %"),
        ("one's own", {}, "Accuracy", "training 100.0 %, validation top1 80.0 %, validation top5 99.0 %"),
        ("one's own", {"accuracy": False}, "Metrics", "validation top1 80.0 %, validation top5 99.0 %"),
        ("one's own", {"measures": False}, "Accuracy", "training 100.0 %"),
        ("custom", {"accuracy": False}, "Metrics", "validation top1 80.0 %, validation top5 99.0 %"),
    ],
)
def test_charts_show_accuracy_and_percentages(
    charts: RunCharts, task: str, options: dict[str, bool], title: str, latest: str
) -> None:
    charts.show_data(data_of(task, **options))
    plot = charts.accuracy
    assert plot.title == plot.accessibleName() == title
    assert plot.describe() == f"Latest: {latest}"
    assert not plot.isHidden()


def test_charts_hide_accuracy_plot_without_metrics(charts: RunCharts) -> None:
    charts.show_data(data_of("one's own", accuracy=False, measures=False))
    assert charts.accuracy.isHidden()
    charts.restart()
    assert not charts.accuracy.isHidden()


def test_charts_smooth_a_later_accuracy(charts: RunCharts) -> None:
    data = data_of("classification")
    charts.set_smoothing(0.9)
    charts.show_data(data)
    smoothed = charts.accuracy.describe()
    charts.set_smoothing(0.0)
    assert charts.accuracy.describe() != smoothed


def test_run_data_logs_percentages_of_known_metrics() -> None:
    lines = [line.text for line in data_of("classification").lines]
    assert "Validation after epoch 1: loss 0.5000, top1 80.00 %, top5 99.00 %" in lines
    lines = [line.text for line in data_of("one's own").lines]
    assert "Validation after epoch 1: loss 0.5000, top1 0.8000, top5 0.9900" in lines
