"""Submit to SLURM: the fields, the script that follows them, and what sbatch says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.support.widgets import OpenWindow


def test_edited_script_is_submitted(
    open_window: OpenWindow,
    qtbot: QtBot,
    tmp_path: Path,
    separate_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = open_window()
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.set_field("strategy", "ddp")
    window.form.validate()
    window.acts.submit.trigger()
    dialog = window.commands.slurm
    dialog.numbers["nodes"].setValue(2)
    dialog.numbers["gpus_per_node"].setValue(0)
    dialog.texts["partition"].setText("-gpu")
    assert not dialog.submit.isEnabled()
    assert "partition" in dialog.problem.text()
    dialog.texts["partition"].setText("gpu")
    assert "#SBATCH --partition=gpu\n#SBATCH --nodes=2" in dialog.script.toPlainText()
    dialog.script.appendPlainText("# mine")
    dialog.texts["account"].setText("vision")
    assert "# mine" in dialog.script.toPlainText()
    assert "vision" not in dialog.script.toPlainText()
    dialog.discard.click()
    assert "--account=vision" in dialog.script.toPlainText()
    assert "# mine" not in dialog.script.toPlainText()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    dialog.submit.click()
    qtbot.waitUntil(dialog.submit.isEnabled)
    assert "SLURM's commands were not found" in dialog.problem.text()
    assert not list((separate_home / "runs").iterdir())
    again = type(dialog)(lambda: window.form.job, window.settings)
    qtbot.addWidget(again)
    assert again.options() == dialog.options()
