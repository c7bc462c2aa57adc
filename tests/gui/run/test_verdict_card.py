"""What a run that has ended could do better, on its page, and the button that puts that into the form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, Failed, RunFinished, RunStarted, Verdict
from engine.runs.folder import RunFolder
from gui.main_window import MainWindow
from gui.run.verdict_card import VerdictCard
from gui.sources.run_data import RunData
from tests.gui.sources.written_runs import a_run, job, story, write

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
    made = VerdictCard()
    qtbot.addWidget(made)
    return made


def ended(verdict: Verdict, **fields: object) -> RunFolder:
    """A completed run that ended with `verdict`."""
    run = a_run(8, None, **fields)  # type: ignore[arg-type]
    last = run.last_event()
    assert last is not None
    write(run.events_file, [verdict, RunFinished(outcome="completed", time=last.time)], last.n + 1)
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    return run


def data(*events: AnyEvent) -> RunData:
    said = RunData()
    for n, event in enumerate(events, 1):
        event.n = n
        said.apply(event)
    return said


def test_that_nothing_is_shown_until_a_run_has_ended_with_something_to_say(card: VerdictCard) -> None:
    card.show_data(RunData())
    assert card.isHidden()
    said = data(AT_REST)
    card.show_data(said)
    assert not card.isHidden()
    assert card.sentence.text() == AT_REST.sentence
    assert card.buttons == [], "there is nothing to change"
    assert said.lines[-1].text == AT_REST.sentence


def test_that_a_run_that_goes_on_is_not_judged_any_more(card: VerdictCard) -> None:
    started = next(event for event in story(job(), 4, None) if isinstance(event, RunStarted))
    card.show_data(data(OVERFITTED))
    card.show_data(data(OVERFITTED, started))
    assert card.isHidden()


def test_that_the_button_says_what_it_puts_into_the_form(card: VerdictCard, qtbot: QtBot) -> None:
    card.show_data(data(OVERFITTED))
    assert card.buttons[0].text() == "Use these settings"
    assert card.buttons[0].accessibleDescription() == "Puts a new run into the form: augmentation light"
    with qtbot.waitSignal(card.requested) as requested:
        card.buttons[0].click()
    assert requested.args == [OVERFITTED.changes, False]
    card.show_data(data(FALLING))
    assert card.buttons[0].text() == "Train further"
    assert card.buttons[0].toolTip() == "Puts this run into the form to train it further: epochs 10"
    with qtbot.waitSignal(card.requested) as requested:
        card.buttons[0].click()
    assert requested.args == [FALLING.changes, True]


def test_that_a_verdict_of_a_newer_footplate_has_no_button(card: VerdictCard) -> None:
    card.show_data(data(Verdict(code="overfitted", sentence="Turn it down.", changes={"warp": 9})))
    assert card.sentence.text() == "Turn it down."
    assert card.buttons == []


def test_that_the_button_puts_a_run_like_this_one_into_the_form_with_the_changes(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    run = ended(OVERFITTED, name="ants", seed=7)
    window = open_window()
    assert window.workspace is not None
    window.show_run(run)
    card = window.workspace.run.verdict
    qtbot.waitUntil(lambda: any(button.isVisible() for button in card.buttons))
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert window.job_panel.banner_text.text() == "A new run like “ants”, but with augmentation light."
    values = window.form.values()
    assert (values["augmentation"], values["seed"]) == ("light", 7)
    assert window.form.rows["augmentation"].editor.control.isVisible(), "its group is open"
    assert window.form.action == "Train"


def test_that_a_run_that_still_got_better_is_put_into_the_form_to_be_trained_further(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    run = ended(FALLING)
    window = open_window()
    assert window.workspace is not None
    window.show_run(run)
    card = window.workspace.run.verdict
    qtbot.waitUntil(lambda: any(button.isVisible() for button in card.buttons))
    card.buttons[0].click()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert window.form.prefill is not None
    assert window.form.prefill.run is not None
    assert window.form.prefill.run.path == run.path
    assert (window.form.action, window.form.values()["epochs"]) == ("Train further", 10)


def test_run_that_lacked_its_weights_is_offered_with_others(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    run = a_run(8, None, model="resnet18", pretrained=True, recipe="fine-tune", name="ants")
    last = run.last_event()
    assert last is not None
    missing = Failed(cause="The pretrained weights can't be downloaded.", field="pretrained", time=last.time)
    write(run.events_file, [missing, RunFinished(outcome="failed", time=last.time)], last.n + 1)
    window = open_window()
    assert window.workspace is not None
    window.show_run(run)
    card = window.workspace.run.verdict
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


def test_verdict_card_ignores_failures_for_other_reasons(card: VerdictCard) -> None:
    card.show_data(data(Failed(cause="The disk is full."), RunFinished(outcome="failed")))
    assert card.isHidden()
