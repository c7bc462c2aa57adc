"""The plot of accuracy and measures, for tasks that have the one, the other or neither."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.run.curves.charts import RunCharts
from gui.sources.run_data import RunData
from tests.gui.run.evaluated_run import events
from tests.gui.sources.written_runs import job


@pytest.fixture
def charts(styled: QApplication, qtbot: QtBot) -> RunCharts:
    made = RunCharts()
    qtbot.addWidget(made)
    return made


def data_of(task: str, *, accuracy: bool = True, measures: bool = True) -> RunData:
    data = RunData()
    for n, event in enumerate(events(job(task=task), accuracy=accuracy, measures=measures), 1):
        event.n = n
        data.apply(event)
    return data


def test_that_accuracy_and_measures_are_shown_for_the_tasks_that_have_them(charts: RunCharts) -> None:
    plot = charts.accuracy
    for data, title, told in (
        (data_of("classification"), "Accuracy", "training 100.0 %, validation top-1 80.0 %, validation top-5 99.0 %"),
        (data_of("classification", accuracy=False), "Metrics", "validation top-1 80.0 %, validation top-5 99.0 %"),
        (data_of("one's own"), "Accuracy", "training 100.0 %, validation top1 80.0 %, validation top5 99.0 %"),
        (data_of("one's own", accuracy=False), "Metrics", "validation top1 80.0 %, validation top5 99.0 %"),
        (data_of("one's own", measures=False), "Accuracy", "training 100.0 %"),
        (data_of("custom", accuracy=False), "Metrics", "validation top1 80.0 %, validation top5 99.0 %"),
    ):
        charts.restart()
        charts.show_data(data)
        assert plot.title == plot.accessibleName() == title
        assert plot.describe() == f"Latest: {told}"
        assert not plot.isHidden()


def test_that_a_run_with_neither_has_no_such_plot_until_another_is_shown(charts: RunCharts) -> None:
    charts.show_data(data_of("one's own", accuracy=False, measures=False))
    assert charts.accuracy.isHidden()
    charts.restart()
    assert not charts.accuracy.isHidden()


def test_that_smoothing_acts_on_an_accuracy_that_comes_later(charts: RunCharts) -> None:
    data = data_of("classification")
    charts.set_smoothing(0.9)
    charts.show_data(data)
    smoothed = charts.accuracy.describe()
    charts.set_smoothing(0.0)
    assert charts.accuracy.describe() != smoothed


def test_that_the_log_writes_shares_as_such_and_other_measures_plainly() -> None:
    lines = [line.text for line in data_of("classification").lines]
    assert "Validation after epoch 1: loss 0.5000, top1 80.00 %, top5 99.00 %" in lines
    lines = [line.text for line in data_of("one's own").lines]
    assert "Validation after epoch 1: loss 0.5000, top1 0.8000, top5 0.9900" in lines
