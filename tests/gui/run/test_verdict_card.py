"""Verdict at the end of a run, and the buttons that apply its advice to the form."""

from __future__ import annotations

import time

import pytest
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.events import Failed, RunFinished, RunStarted, Verdict
from engine.runs.folder import RunFolder
from gui.run.cards import VerdictCard
from gui.sources.run_data import RunData
from tests.gui.sources.written_runs import append_events, job, list_run_events, write_run
from tests.support.run_data import make_run_data
from tests.support.widgets import OpenWindow

OVERFITTED = Verdict(
    code="overfitted", sentence="Overfitted since epoch 2. Try augmentation light.", changes={"augmentation": "light"}
)
FALLING = Verdict(
    code="falling", sentence="Validation loss was still falling: train 6 epochs more.", changes={"epochs": 10}
)
LITE = "timm:tf_efficientnet_lite0"
AT_REST = Verdict(code="converged", sentence="Converged: the best epoch was 3 of 4.")


@pytest.fixture
def card(styled: QApplication, qtbot: QtBot) -> VerdictCard:
    created = VerdictCard()
    qtbot.addWidget(created)
    return created


def make_ended_run(verdict: Verdict, **fields: object) -> RunFolder:
    """Create a completed run with this final `verdict`. `fields` are those of its job."""
    run = write_run(8, None, **fields)
    append_events(run, verdict, RunFinished(outcome="completed", time=time.time()))
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    return run


def test_verdict_card_is_hidden_without_verdict(card: VerdictCard) -> None:
    card.show_data(RunData())
    assert card.isHidden()
    run_data = make_run_data([AT_REST])
    card.show_data(run_data)
    assert not card.isHidden()
    assert card.sentence.text() == AT_REST.sentence
    assert card.buttons == []
    assert run_data.lines[-1].text == AT_REST.sentence


def test_verdict_card_hides_for_resumed_run(card: VerdictCard) -> None:
    started = next(event for event in list_run_events(job(), 4, None) if isinstance(event, RunStarted))
    card.show_data(make_run_data([OVERFITTED]))
    card.show_data(make_run_data([OVERFITTED, started]))
    assert card.isHidden()


def test_verdict_card_requests_changes(card: VerdictCard, qtbot: QtBot) -> None:
    card.show_data(make_run_data([OVERFITTED]))
    assert card.buttons[0].text() == "Use these settings"
    assert card.buttons[0].accessibleDescription() == "Put a new run into the form: augmentation light"
    with qtbot.waitSignal(card.requested) as requested:
        card.buttons[0].click()
    assert requested.args == [OVERFITTED.changes, False]
    buttons = card.buttons
    card.show_data(make_run_data([OVERFITTED]))
    assert card.buttons is buttons
    card.show_data(make_run_data([FALLING]))
    qtbot.waitUntil(lambda: card.findChildren(QPushButton) == card.buttons)
    assert card.buttons[0].text() == "Train further"
    assert card.buttons[0].toolTip() == "Put this run into the form to train it further: epochs 10"
    with qtbot.waitSignal(card.requested) as requested:
        card.buttons[0].click()
    assert requested.args == [FALLING.changes, True]


def test_verdict_card_has_no_button_for_unknown_field(card: VerdictCard) -> None:
    for changes in ({"warp": 9}, {"epochs": 9, "warp": 9}):
        card.show_data(make_run_data([Verdict(code="overfitted", sentence="Turn it down.", changes=changes)]))
        assert card.sentence.text() == "Turn it down."
        assert card.buttons == []


def test_verdict_button_prefills_form_with_changes(open_window: OpenWindow, qtbot: QtBot) -> None:
    run = make_ended_run(OVERFITTED, name="ants", seed=7)
    window = open_window()
    window.show_run(run)
    card = window.workspace.run.advice.verdict
    qtbot.waitUntil(lambda: any(button.isVisible() for button in card.buttons))
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    values = window.form.values()
    assert (values["augmentation"], values["seed"]) == ("light", 7)
    assert window.form.rows["augmentation"].editor.control.isVisible()
    assert window.form.action == "Train"


def test_verdict_button_prefills_form_to_continue(open_window: OpenWindow, qtbot: QtBot) -> None:
    run = make_ended_run(FALLING)
    window = open_window()
    window.show_run(run)
    card = window.workspace.run.advice.verdict
    qtbot.waitUntil(lambda: any(button.isVisible() for button in card.buttons))
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert window.form.prefill.run.path == run.path
    assert (window.form.action, window.form.values()["epochs"]) == ("Train further", 10)


def test_verdict_card_offers_other_weights(open_window: OpenWindow, qtbot: QtBot) -> None:
    run = write_run(8, None, model="resnet18", pretrained=True, recipe="fine-tune", name="ants")
    missing = Failed(cause="The pretrained weights can't be downloaded.", field="pretrained", time=time.time())
    append_events(run, missing, RunFinished(outcome="failed", time=time.time()))
    window = open_window()
    window.show_run(run)
    card = window.workspace.run.advice.verdict
    qtbot.waitUntil(card.isVisible)
    assert [button.text() for button in card.buttons] == ["Use EfficientNet-Lite0 (included)", "Train from scratch"]
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    values = window.form.values()
    assert (values["model"], values["pretrained"], values["recipe"]) == (LITE, True, "fine-tune")
    card.buttons[1].click()
    qtbot.waitUntil(lambda: window.form.values()["recipe"] == "from-scratch")
    values = window.form.values()
    assert (values["model"], values["pretrained"], values["optimizer"]) == ("resnet18", False, "sgd")
    assert window.form.action == "Train"


def test_verdict_card_offers_devices_other_than_a_lost_gpu(open_window: OpenWindow, qtbot: QtBot) -> None:
    run = write_run(8, None, strategy="ddp", devices=("cpu", "cpu", "cpu"))
    changes = {"accumulation": 2, "devices": ("cpu", "cpu")}
    lost = Failed(cause="GPU 2 is lost.", kind="lost_gpu", changes=changes, time=time.time())
    append_events(run, lost, RunFinished(outcome="failed", time=time.time()))
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    window = open_window()
    window.show_run(run)
    card = window.workspace.run.advice.verdict
    qtbot.waitUntil(card.isVisible)
    assert [button.text() for button in card.buttons] == ["Resume on the other devices"]
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert window.form.prefill.run.path == run.path
    qtbot.waitUntil(lambda: window.form.values()["devices"] == ["cpu", "cpu"])
    assert window.form.values()["accumulation"] == 2


def test_verdict_card_offers_new_run_without_checkpoint(card: VerdictCard, qtbot: QtBot) -> None:
    lost = Failed(cause="GPU 1 is lost.", kind="lost_gpu", changes={"devices": ("cpu",)})
    started = next(list_run_events(job(), 4, None))
    card.show_data(make_run_data([started, OVERFITTED, lost, RunFinished(outcome="failed")]))
    assert card.buttons[0].text() == "Train on the other devices"
    with qtbot.waitSignal(card.requested) as requested:
        card.buttons[0].click()
    assert requested.args == [{"devices": "cpu"}, False]


def test_verdict_card_ignores_failures_for_other_reasons(card: VerdictCard) -> None:
    started = next(list_run_events(job(pretrained=True), 4, None))
    lost = Failed(cause="GPU 1 is lost.", kind="lost_gpu", changes={"devices": ("cpu",)})
    weights = Failed(cause="The weights can't be downloaded.", field="pretrained")
    full = Failed(cause="The disk is full.")
    for events in ([started, full, RunFinished(outcome="failed")], [started, lost], [started, weights]):
        card.show_data(make_run_data(events))
        assert card.isHidden()
