"""A run exported from the window."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from gui.run.page import RunPage
from gui.sources.run_session import RunSession
from tests.gui.sources.written_runs import a_run


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> Iterator[RunPage]:
    """A page that shows a run that has failed."""
    store = RunSession()
    made = RunPage(store)
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    store.open(a_run(40, "failed", cause="Out of memory"))
    qtbot.waitUntil(made.result.isVisible)
    yield made
    made.exporter.close()
    store.close()


@pytest.mark.long
def test_that_the_run_on_screen_is_exported_where_the_user_says(page: RunPage, qtbot: QtBot, tmp_path: Path) -> None:
    qtbot.mouseClick(page.result.export, Qt.MouseButton.LeftButton)
    dialog = page.findChild(QFileDialog)
    assert dialog is not None
    assert page.store.run is not None
    assert dialog.defaultSuffix() == "zip"
    target = tmp_path / "report.zip"
    target.write_text("what was there before")
    with qtbot.waitSignal(page.exporter.done):
        dialog.fileSelected.emit(str(target))
    dialog.close()
    with zipfile.ZipFile(target) as archive:
        names = {Path(name).name for name in archive.namelist()}
    assert names == {"job.toml", "events.jsonl", "doctor.txt"}
    assert [path.name for path in tmp_path.glob("*.zip")] == ["report.zip"]


def test_that_an_export_that_fails_says_why(page: RunPage, qtbot: QtBot, tmp_path: Path) -> None:
    assert page.store.run is not None
    told: list[tuple[str, str]] = []
    page.message.connect(lambda text, severity: told.append((text, severity)))
    with qtbot.waitSignal(page.exporter.failed):
        page.export(page.store.run, tmp_path / "missing" / "report.zip")
    text, severity = told[-1]
    assert severity == "warning"
    assert "was not written" in text
    assert "Choose another folder" in text
