"""What the advisor says where nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advisor.advice import trials
from engine.advisor.advice.answer import answer
from engine.advisor.advice.candidates import ways
from engine.advisor.advice.known import Known
from engine.advisor.advice.ranking import Tried
from engine.contract.advice import AdviceOrder
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.system import paths

JOB = Job(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, devices=("cpu",))


@pytest.fixture
def known() -> Known:
    catalogue = load_catalogue()
    found = Known(AdviceOrder(job=JOB), catalogue)
    found.waiting = [Tried(way) for way in ways(JOB, catalogue) if not way.refusal]
    assert found.waiting
    return found


def test_that_time_which_was_up_too_early_is_told_with_what_to_do(known: Known) -> None:
    told = answer(known)
    assert not told.fits
    assert told.sentence == "The time was up before any step was measured. Give it more."
    assert {left.kind for left in told.left_out} == {"time"}
    known.stop()
    assert answer(known).sentence == "It was stopped before anything was measured."


def test_that_a_machine_too_busy_to_look_at_the_model_in_time_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def too_slow(*_words: object, **_options: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(trials, "run_workers", too_slow)
    assert trials.footprint(JOB, tmp_path, 0.1) is None
