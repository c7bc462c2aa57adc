"""The process that looks through a folder: its answers, and its end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.system import paths
from gui.sources.inspector import Inspector
from gui.sources.launcher import problem_of, resolved

pytestmark = pytest.mark.usefixtures("real_inspector")


@pytest.fixture
def inspector(qapp: QCoreApplication) -> Iterator[Inspector]:
    made = Inspector()
    yield made
    made.close()


def test_that_a_folder_is_looked_through_with_progress(inspector: Inspector, qtbot: QtBot) -> None:
    told: list[tuple[int, int]] = []
    inspector.progress.connect(lambda done, total: told.append((done, total)))
    with qtbot.waitSignal(inspector.done) as answer:
        inspector.start(Job(dataset=str(paths.sample_dataset())))
    assert answer.args is not None
    report: DatasetReport = answer.args[0]
    assert report.format == "imagefolder"
    assert len(report.classes) == 10
    assert len(report.examples) > 0
    assert told[0] == (0, 0)
    assert not inspector.running


def test_that_only_the_folder_asked_for_last_is_answered(inspector: Inspector, qtbot: QtBot, tmp_path: Path) -> None:
    answers: list[DatasetReport] = []
    inspector.done.connect(answers.append)
    inspector.start(Job(dataset=str(paths.sample_dataset())))
    inspector.start(Job(dataset=str(tmp_path)))
    qtbot.waitUntil(lambda: len(answers) == 1)
    assert answers[0].folder == str(tmp_path)
    assert answers[0].problems
    assert not inspector._ending


def test_that_a_cancelled_look_gives_no_answer_and_leaves_no_process(inspector: Inspector, qtbot: QtBot) -> None:
    with qtbot.assertNotEmitted(inspector.done), qtbot.assertNotEmitted(inspector.failed):
        inspector.start(Job(dataset=str(paths.sample_dataset())))
        inspector.cancel()
        qtbot.waitUntil(lambda: not inspector._ending)


def test_that_a_process_that_ends_early_is_told_of(inspector: Inspector, qtbot: QtBot) -> None:
    with qtbot.waitSignal(inspector.failed) as answer:
        inspector.start(Job(dataset=str(paths.sample_dataset()), val_fraction=float("nan"), seed=-1))
        assert inspector._process is not None
        inspector._process.waitForStarted()
        inspector._process.kill()
    assert answer.args is not None
    assert "ended early" in answer.args[0]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "No permission"),
        (errno.EROFS, "No permission"),
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EIO, "Could not create"),
    ],
)
def test_that_a_run_that_cannot_be_written_names_place_and_remedy(number: int, said: str) -> None:
    problem = problem_of(OSError(number, "as the system words it", "/data/runs"))
    assert said in problem.message
    assert "/data/runs" in problem.message
    assert "FOOTPLATE_HOME" in problem.remedy


def test_that_a_run_gets_whole_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = resolved(Job(dataset="images", model="~/net.py", weights_file=""))
    assert job.dataset == str(tmp_path / "images")
    assert job.model == str(tmp_path / "home" / "net.py")
    assert job.weights_file == ""
    assert resolved(Job(dataset="images")).model == Job().model
