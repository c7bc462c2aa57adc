"""Inspection of dataset folders in a child process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, call

import msgspec
import pytest
from PySide6.QtCore import QCoreApplication, QProcess
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, InspectionProgress, inspector_options
from engine.contract.job import Job
from engine.contract.messages import Done
from engine.system import paths
from gui.sources import inspector as inspector_module
from gui.sources.inspector import Inspector, PluginReader, Thumbnails

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


def test_inspector_receives_a_long_report(
    inspector: Inspector, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = DatasetReport(folder="f" * (2 << 20), format="")
    (tmp_path / "output").write_bytes(msgspec.json.encode(Done(answer=report)) + b"\n")
    command = Mock(return_value=("cat", [str(tmp_path / "output")]))
    monkeypatch.setattr(Inspector, "command", command)
    job = Job.from_fields(dataset=str(tmp_path), task="segmentation", seed=3)
    with qtbot.waitSignal(inspector.done) as answer:
        inspector.start(job)
    assert answer.args == [report]
    command.assert_called_once_with([str(tmp_path), *inspector_options(job, load_catalogue())])
    assert inspector.folder == str(tmp_path)


def test_plugins_are_read_until_their_entries_are_saved(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "entries"
    command = Mock(side_effect=[(program, [str(file)]) for program in ("true", "touch")])
    monkeypatch.setattr(PluginReader, "command", command)
    reader, before = PluginReader(), load_catalogue()
    monkeypatch.setattr(inspector_module, "supplement_file", lambda: None)
    reader.start()  # no plug-ins are installed
    monkeypatch.setattr(inspector_module, "supplement_file", lambda: file)
    with qtbot.waitSignal(reader.failed):
        reader.start()
    assert load_catalogue() is before
    with qtbot.waitSignal(reader.done):
        reader.start()
    assert load_catalogue() is not before
    reader.start()
    assert command.mock_calls == [call(["--plugins"])] * 2


def test_inspector_answers_last_folder_only(inspector: Inspector, qtbot: QtBot, tmp_path: Path) -> None:
    answers: list[DatasetReport] = []
    inspector.done.connect(answers.append)
    inspector.start(Job.from_fields(dataset=str(paths.sample_dataset())))
    inspector.start(Job.from_fields(dataset=str(tmp_path)))
    qtbot.waitUntil(lambda: len(answers) == 1)
    assert answers[0].folder == str(tmp_path)
    assert answers[0].problems
    qtbot.waitUntil(lambda: not inspector.findChildren(QProcess))


def test_thumbnails_read_the_latest_requests_first(
    qapp: QCoreApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request seven images. The first one is read alone, the others in batches of two; the cache keeps three."""
    read: list[tuple[str, int]] = []

    def read_image(file: Path, side: int) -> QImage | str:
        read.append((file.name, side))
        return "broken" if file.name == "2" else QImage(1, 1, QImage.Format.Format_Mono)

    monkeypatch.setattr(inspector_module, "read_image", read_image)
    monkeypatch.setattr(inspector_module, "_BATCH", 2)
    monkeypatch.setattr(inspector_module, "_CAPACITY", 3)
    thumbnails = Thumbnails(16)
    batches: list[None] = []
    thumbnails.loaded.connect(lambda: batches.append(None))
    for name in ("0", "1", "2", "3", "4", "5", "6", "2"):
        assert thumbnails.image(Path(name)) is None
    qtbot.waitUntil(lambda: len(batches) == 4)
    assert read == [(name, 16) for name in "0265431"]
    assert [name for name in "0123456" if thumbnails.image(Path(name)) is not None] == ["1", "3", "4"]
    thumbnails.close()
