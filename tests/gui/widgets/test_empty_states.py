"""Texts of empty states and problems. They must never be clipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QLabel, QWidget

from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.compare.page import ComparePage
from gui.dataset.page import DatasetPage
from gui.finders.batch_size import BatchPage
from gui.finders.learning_rate import RatePage
from gui.run.classes.view import ClassesView
from gui.run.predictions.view import PredictionsView
from gui.runs.page import RunsPage
from gui.sources.run_list import RunList
from gui.split_points.page import SplitPointsPage
from tests.support.widgets import ShowWidget

JOB = Job.from_fields(dataset="/data", model="resnet18", strategy="pipeline", devices=("cpu", "cpu"))
TOO_LARGE = Problem(
    "batch_size",
    "The stages do not fit: 3 batches of 32 images at 512 x 512 need 41.3 GiB on CPU worker 1, which may use 7.4 GiB, and 38.2 "
    "GiB on CPU worker 2, which may use 7.4 GiB.",
    "Choose a smaller batch size, a smaller image size, more microbatches, or activation checkpointing.",
    "error",
)


def other_split_points() -> QWidget:
    page = SplitPointsPage()
    page.show_job(JOB, [TOO_LARGE, TOO_LARGE], {})
    return page


def wrong_finder() -> QWidget:
    page = BatchPage()
    page.show_job(JOB, [TOO_LARGE])
    return page


MAKERS: list[Callable[[], QWidget]] = [
    SplitPointsPage,
    other_split_points,
    RatePage,
    wrong_finder,
    DatasetPage,
    lambda: RunsPage(RunList()),
    ClassesView,
    PredictionsView,
    lambda: ComparePage(RunList()),
]


@pytest.mark.parametrize("make", MAKERS)
def test_empty_state_shows_full_text_at_every_width(show_widget: ShowWidget, make: Callable[[], QWidget]) -> None:
    page = show_widget(make())
    for width in (360, 420, 480, 720, 1400):
        page.resize(width, 240)
        QCoreApplication.processEvents()
        wrapped = [
            label for label in page.findChildren(QLabel) if label.isVisible() and label.wordWrap() and label.text()
        ]
        assert wrapped
        cut_off = [
            (label.text(), label.size()) for label in wrapped if label.height() < label.heightForWidth(label.width())
        ]
        assert cut_off == []
