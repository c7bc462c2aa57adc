"""The list of three steps: how the data, the recipe and the devices stand."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from gui.form.form import JobForm
from tests.gui.form.test_form import REPORT


def test_steps_show_data_recipe_and_devices(form: JobForm, images: Path, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: form.steps.states.get("Data") == "attention")
    chosen: list[Job | None] = []
    form.folder_chosen.connect(chosen.append)
    form.set_field("dataset", str(images))
    qtbot.waitUntil(lambda: form.steps.states["Data"] == "working")
    form.set_field("model", "resnet18")
    qtbot.waitUntil(lambda: chosen != [] and chosen[-1] is not None)
    form.set_report(REPORT)
    qtbot.waitUntil(lambda: form.steps.states == {"Data": "done", "Recipe": "done", "Devices": "done"})
    assert form.steps.lines["Data"].text() == "Data: 2 classes, 33 images"
    assert "CPU · Single device" in form.steps.lines["Devices"].text()
    form.set_devices(())
    qtbot.waitUntil(lambda: form.steps.states["Devices"] == "attention")
    assert form.steps.lines["Devices"].accessibleDescription().startswith("needs attention: ")
    form.set_field("epochs", 3)
    form.set_field("learning_rate", "fast")
    qtbot.waitUntil(lambda: form.steps.states["Recipe"] == "attention")
    form.steps.lines["Recipe"].click()
    assert form.window().focusWidget() is form.rows["learning_rate"].editor.control
