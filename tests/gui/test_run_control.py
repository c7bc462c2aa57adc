"""Start of runs by the form and the launcher."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.runs.folder import create_run
from gui.sources.launcher import Launcher
from tests.gui.sources.written_runs import job
from tests.support.widgets import OpenWindow


def test_same_job_starts_again_only_after_a_question(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Job] = []
    monkeypatch.setattr(Launcher, "start", lambda _launcher, job: started.append(job))
    window, first = open_window(), job()
    window.job_panel.train_requested.emit(first)
    window.workspace.launcher.started.emit(create_run(first))
    window.job_panel.train_requested.emit(first.with_fields(epochs=first.training.epochs + 1))
    assert len(started) == 2
    window.job_panel.train_requested.emit(first.with_fields(start="at_once"))
    assert len(started) == 2
    (box,) = window.findChildren(QMessageBox)
    box.accept()
    qtbot.waitUntil(lambda: len(started) == 3)
