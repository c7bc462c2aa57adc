"""Inspection of dataset folders in a child process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport, InspectionProgress
from engine.contract.job import Job
from engine.system import paths
from gui.sources.inspector import Inspector

pytestmark = pytest.mark.usefixtures("real_inspector")


@pytest.fixture
def inspector(qapp: QCoreApplication) -> Iterator[Inspector]:
    created = Inspector()
    yield created
    created.close()


def test_inspector_reports_progress_and_classes(inspector: Inspector, qtbot: QtBot) -> None:
    progress: list[InspectionProgress] = []
    inspector.progress.connect(progress.append)
    with qtbot.waitSignal(inspector.done) as answer:
        inspector.start(Job.from_fields(dataset=str(paths.sample_dataset())))
    report: DatasetReport = answer.args[0]
    assert report.format == "imagefolder"
    assert len(report.classes) == 10
    assert len(report.examples) > 0
    assert progress[0] == InspectionProgress(0, 0)
    assert not inspector.running


def test_inspector_answers_last_folder_only(inspector: Inspector, qtbot: QtBot, tmp_path: Path) -> None:
    answers: list[DatasetReport] = []
    inspector.done.connect(answers.append)
    inspector.start(Job.from_fields(dataset=str(paths.sample_dataset())))
    inspector.start(Job.from_fields(dataset=str(tmp_path)))
    qtbot.waitUntil(lambda: len(answers) == 1)
    assert answers[0].folder == str(tmp_path)
    assert answers[0].problems
    assert inspector.process_count == 0
