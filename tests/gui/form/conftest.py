"""Forms with a folder, and a model file that asks for consent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from gui.form.form import JobForm
from tests.gui.form.test_form import fill


@pytest.fixture
def filled(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form with a valid job on the CPU."""
    fill(form, images, qtbot)
    return form


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a file with a user's model."""
    path = tmp_path / "net.py"
    path.write_text("def build_model(num_classes): ...\n")
    return path
