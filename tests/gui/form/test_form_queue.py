"""Queue options of the form, and messages about queued runs."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from gui.form.environment import QueuedRuns
from gui.form.form import JobForm
from gui.form.submit_bar import describe_queue
from gui.sources.active_runs import QueuedRun

A, B, NIGHT = QueuedRun("a", 130.0), QueuedRun("b", 720.0), QueuedRun("night shift", 22.4)
NAMES = {"GPU-a": "GPU 0", "GPU-b": "GPU 1"}


@pytest.mark.parametrize(
    ("devices", "queued", "message"),
    [
        (("cpu",), {}, ""),
        (("cpu",), {"GPU-a": (QueuedRun("x"),)}, ""),
        (("cpu", "cpu"), {"cpu": (NIGHT,)}, "Starts after “night shift”, in about 22 s."),
        (("GPU-a",), {"GPU-a": (A, B)}, "Starts after “a” and “b”, in about 12 min."),
        (
            ("GPU-a", "GPU-b"),
            {"GPU-a": (A, B), "GPU-b": (B, QueuedRun("c"))},
            "Starts after “a”, “b” and 1 more.",
        ),
        (
            ("GPU-a",),
            {"GPU-a": (QueuedRun("a", has_ended=True), B)},
            "Starts after the use of “a”’s model and “b”.",
        ),
    ],
)
def test_form_names_queued_runs(devices: tuple[str, ...], queued: QueuedRuns, message: str) -> None:
    assert describe_queue(queued, devices, NAMES, False) == message


def test_shared_devices_are_named() -> None:
    message = describe_queue({"GPU-b": (A,), "cpu": (A, B)}, ("GPU-a", "GPU-b", "cpu", "cpu"), NAMES, True)
    assert [name in message for name in ("GPU 0", "GPU 1", "CPU")] == [False, True, True]
    assert [message.count(f"“{run}”") for run in "ab"] == [1, 1]


def test_run_can_start_despite_queued_runs(filled: JobForm, qtbot: QtBot) -> None:
    form = filled
    assert not form.submit_bar.queue.isVisible()
    form.set_queued_runs({"cpu": (NIGHT,)})
    assert form.submit_bar.queue.text() == describe_queue({"cpu": (NIGHT,)}, ("cpu",), {}, False)
    assert form.submit_bar.queue.isVisible()
    assert form.train.text() == "Add to queue"
    with qtbot.waitSignal(form.train_requested) as blocker:
        qtbot.mouseClick(form.submit_bar.at_once, Qt.MouseButton.LeftButton)
    assert blocker.args[0].faults.start == "at_once"
    assert form.field_value("start") == "when_free"
    form.set_field("start", "at_once")
    shared = describe_queue({"cpu": (NIGHT,)}, ("cpu",), {}, True)
    qtbot.waitUntil(lambda: form.submit_bar.queue.text() == shared)
    assert not form.submit_bar.at_once.isVisible()
    assert form.train.text() == "Train"
    form.set_queued_runs({})
    assert not form.submit_bar.queue.isVisible()


def test_focus_returns_to_train_after_immediate_start(filled: JobForm) -> None:
    form = filled
    form.set_queued_runs({"cpu": (NIGHT,)})
    form.submit_bar.at_once.setFocus()
    form.set_starting(True)
    assert form.window().focusWidget() not in (form.train, form.submit_bar.at_once)
    form.set_starting(False)
    assert form.window().focusWidget() is form.train


def test_focus_goes_to_train_unless_the_user_goes_elsewhere(filled: JobForm) -> None:
    window, epochs = filled.window(), filled.rows["epochs"].editor.control
    for elsewhere, focused in ((None, filled.train), (epochs, epochs)):
        filled.set_starting(True)
        filled.submit_bar.focus_train()
        assert window.focusWidget() is filled.copy
        if elsewhere is not None:
            elsewhere.setFocus()
        filled.set_starting(False)
        assert window.focusWidget() is focused


def test_wait_for_others_is_visible_when_it_applies(form: JobForm) -> None:
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
