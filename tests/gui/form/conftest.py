"""Fixtures: a form with a valid job, and a model file that needs the user's consent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.form.form import JobForm
from tests.gui.form.test_form import fill_in


@pytest.fixture
def filled(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form with a valid job for the CPU."""
    fill_in(form, images, qtbot)
    return form


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """Create a model file and return its path."""
    path = tmp_path / "net.py"
    path.write_text("def build_model(num_classes): ...\n")
    return path


@pytest.fixture(scope="module", autouse=True)
def style_sheet(styled: QApplication) -> Iterator[None]:
    """Remove the style sheet, because a form takes long to style. Modules whose tests depend on it override this."""
    sheet = styled.styleSheet()
    styled.setStyleSheet("")
    yield
    styled.setStyleSheet(sheet)
