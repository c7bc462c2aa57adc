"""Verdict at the end of a run, in its log, in the terminal and as JSON."""

from __future__ import annotations

import pytest

from engine.contract.events import EVENT, RunFinished, Validation, Verdict
from engine.contract.protocol import Stop
from engine.system import paths
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import Start, events


def test_finding_covers_all_executions(start: Start) -> None:
    supervised = start("learn 2", epochs=2)
    logged = supervised.wait()
    assert not any(isinstance(event, Verdict) for event in logged), "two epochs tell nothing"
    supervised.process = supervised.start()
    *_, verdict, finished = supervised.wait()
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "completed"
    assert isinstance(verdict, Verdict)
    assert verdict.sentence.startswith("Validation loss was still falling by 10% per epoch: train for ")
    assert verdict.changes["epochs"] > 4


def test_finding_of_a_stopped_run(start: Start) -> None:
    supervised = start("learn_and_wait 5", epochs=20)
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, Validation) and event.epoch == 5)
        connection.send(Stop())
        list(stream)
    *_, verdict, finished = supervised.wait()
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "stopped"
    assert isinstance(verdict, Verdict)
    assert verdict.sentence.endswith("when the run was stopped after 5 of 20 epochs: resume the run.")


@pytest.mark.long
def test_terminal_shows_the_finding() -> None:
    small = ("--model", "mnist_cnn", "--image-size", "28", "--epochs", "3", "--learning-rate", "1e-8")
    answer = footplate("train", str(paths.sample_dataset()), *small, "--name", "slow")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    place = next(number for number, line in enumerate(lines) if "the learning rate of 1e-08 is too low" in line)
    assert lines[place + 1] == "  Next time: --learning-rate 0.01"
    assert lines[place + 2].startswith("Completed after")
    again = footplate("attach", "slow", "--json")
    (verdict,) = (event for line in again.out.splitlines() if isinstance(event := EVENT.decode(line), Verdict))
    assert verdict.code == "not_fitted"
    assert verdict.changes == {"learning_rate": 0.01}
