"""Fixtures for the page of a run, without the main window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.run.page import RunPage
from gui.sources.run_session import RunSession
from gui.sources.update_timer import UpdateTimer


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> RunPage:
    session = RunSession()
    page = RunPage(session)
    session.setParent(page)

    def close(_page: object) -> None:
        page.exporter.close()
        session.close()

    qtbot.addWidget(page, before_close_func=close)
    page.resize(1000, 1000)
    page.show()
    page.activateWindow()
    return page


@pytest.fixture
def show(page: RunPage, qtbot: QtBot) -> Callable[[RunFolder], RunPage]:
    """Return a function that opens a run, waits until the page shows all its data, and returns the page."""

    def open_run(run: RunFolder) -> RunPage:
        page.session.open(run)
        qtbot.waitUntil(lambda: not page.session.loading and page.charts is not None)
        updates = page.session.findChild(UpdateTimer).findChild(QTimer)
        qtbot.waitUntil(lambda: not updates.isActive())
        return page

    return open_run
