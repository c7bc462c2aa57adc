"""Queue in the form: its fields, and messages about queued runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from gui.form.form import SECTIONS, JobForm
from gui.form.submit import queue_message
from tests.gui.form.test_form import fill

NAMES = {"GPU-a": "GPU 0", "GPU-b": "GPU 1"}


@pytest.mark.parametrize(
    ("devices", "ahead", "said"),
    [
        (("cpu",), {}, ""),
        (("cpu",), {"GPU-a": ("x",)}, ""),
        (("cpu", "cpu"), {"cpu": ("night shift",)}, "Waits for the CPU, behind “night shift”."),
        (("GPU-a",), {"GPU-a": ("a", "b")}, "Waits for GPU 0, behind “a” and “b”."),
        (
            ("GPU-a", "GPU-b"),
            {"GPU-a": ("a", "b"), "GPU-b": ("b", "c")},
            "Waits for GPU 0 and GPU 1, behind “a”, “b” and 1 more.",
        ),
    ],
)
def test_form_names_the_runs_ahead(devices: tuple[str, ...], ahead: dict[str, tuple[str, ...]], said: str) -> None:
    assert queue_message(ahead, devices, NAMES, False) == said


def test_immediate_start_warns_of_shared_devices() -> None:
    assert (
        queue_message({"cpu": ("a",)}, ("cpu",), {}, True) == "Shares the CPU with “a”; sharing slows every run down."
    )


def test_run_can_start_despite_queued_runs(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    assert not form.submit_bar.queue.isVisible()
    form.set_queued_runs({"cpu": ("night shift",)})
    assert form.submit_bar.queue.text() == "Waits for the CPU, behind “night shift”."
    assert form.submit_bar.queue.isVisible()
    with qtbot.waitSignal(form.train_requested) as asked:
        qtbot.mouseClick(form.submit_bar.at_once, Qt.MouseButton.LeftButton)
    assert asked.args[0].faults.start == "at_once"
    assert form.field_value("start") == "when_free"
    form.set_field("start", "at_once")
    qtbot.waitUntil(lambda: "slows every run down" in form.submit_bar.queue.text())
    assert not form.submit_bar.at_once.isVisible()
    form.set_queued_runs({})
    assert not form.submit_bar.queue.isVisible()


def test_focus_returns_to_train_after_immediate_start(form: JobForm, images: Path, qtbot: QtBot) -> None:
    fill(form, images, qtbot)
    form.set_queued_runs({"cpu": ("night shift",)})
    form.submit_bar.at_once.setFocus()
    form.set_starting(True)
    assert form.window().focusWidget() not in (form.train, form.submit_bar.at_once)
    form.set_starting(False)
    assert form.window().focusWidget() is form.train


def test_wait_for_others_is_shown_when_it_applies(form: JobForm) -> None:
    row = form.rows["wait_for_others"]
    assert row.isHidden()
    form.set_devices(("GPU-a",))
    assert not row.isHidden()
    row.set_value(True)
    assert form.values()["wait_for_others"] is True
    form.set_field("start", "at_once")
    assert row.isHidden()
    assert form.values()["wait_for_others"] is False
    form.set_field("start", "when_free")
    assert form.values()["wait_for_others"] is True


def test_queue_choices_have_titles(form: JobForm) -> None:
    titles = {
        name: [box.itemText(index) for index in range(box.count())]
        for name in SECTIONS["Queue and faults"]
        if hasattr(box := form.rows[name].editor.control, "itemText")
    }
    assert titles == {
        "start": ["When free", "At once"],
        "on_not_finite": ["Stop", "Roll back", "Skip the step"],
        "on_lost_machine": ["Wait for it", "Continue with fewer"],
    }


def test_form_returns_every_queue_field(form: JobForm, images: Path) -> None:
    job = Job.from_fields(
        dataset=str(images), devices=("GPU-a",), wait_for_others=True, restarts=0, on_not_finite="skip"
    )  # fmt: skip
    for each in (job, Job.from_fields(dataset=str(images), start="at_once", restarts=7, on_not_finite="roll_back")):
        form.set_job(each)
        form.set_devices(each.parallel.devices)
        form.validate()
        assert form.job == each
