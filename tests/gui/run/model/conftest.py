"""Fixtures for the model view of a completed run."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.run.model.view import ModelView
from gui.run.request_pages import RESULT
from tests.gui.run.model.saved_evaluations import make_dataset, save_evaluation
from tests.gui.sources.written_runs import write_run
from tests.support.widgets import ShowWidget


@pytest.fixture(autouse=True)
def private_trash(trash: Path) -> None:
    """Use the temporary trash of the fixture `trash` for deleted evaluations in every test."""


@pytest.fixture
def dataset(styled: QApplication, tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "trees")


@pytest.fixture
def run(dataset: Path) -> RunFolder:
    """Create a run with a saved evaluation."""
    created = write_run(8, dataset=str(dataset))
    (created.checkpoints / "best.pt").write_bytes(b"weights")
    save_evaluation(created, dataset)
    return created


@pytest.fixture
def empty_view(show_widget: ShowWidget) -> ModelView:
    return show_widget(ModelView(), 600, 620)


@pytest.fixture
def view(empty_view: ModelView, run: RunFolder, qtbot: QtBot) -> ModelView:
    """Return the model view after it has opened the run and its evaluation."""
    empty_view.show_run(run)
    qtbot.waitUntil(lambda: empty_view.pages.currentIndex() == RESULT)
    return empty_view
