"""The real window for tests: the program's own style, and nothing left running when it closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui import theme
from gui.form.form import JobForm
from gui.launcher import Launcher
from gui.main_window import MainWindow

OFFSCREEN_NOISE = "This plugin does not support"
"""Qt's offscreen platform says so of size hints and of raising a window; no screen says it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gui" in item.path.as_posix():
            item.add_marker(pytest.mark.qt_log_ignore(OFFSCREEN_NOISE))


@pytest.fixture(scope="session")
def styled(qapp: QApplication) -> QApplication:
    theme.apply(qapp)
    return qapp


@pytest.fixture
def form(styled: QApplication, qtbot: QtBot) -> JobForm:
    """The form by itself, with no folder chosen."""
    made = JobForm()
    qtbot.addWidget(made)
    made.resize(380, 760)
    made.show()
    return made


@pytest.fixture
def warm_parent() -> None:
    """Windows get a warm parent ready, as the program's do."""


@pytest.fixture(autouse=True)
def nothing_beforehand(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows get no warm parent ready, which takes seconds, but in tests that ask for one."""
    if "warm_parent" not in request.fixturenames:
        monkeypatch.setattr(Launcher, "touch", lambda _launcher: None)


@pytest.fixture
def open_window(styled: QApplication, qtbot: QtBot) -> Iterator[Callable[[], MainWindow]]:
    """Opens windows as the program does, and closes those that the test leaves open."""
    opened: list[MainWindow] = []

    def open_one() -> MainWindow:
        window = MainWindow()
        opened.append(window)
        qtbot.addWidget(window)
        with qtbot.waitSignal(window.completed, timeout=20_000):
            window.show()
        return window

    yield open_one
    for window in opened:
        window.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder that at least exists."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder
