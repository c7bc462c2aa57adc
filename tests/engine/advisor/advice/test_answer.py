"""Answers of the advisor when no trial could be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.advisor.advice import advisor, trials
from engine.advisor.advice.answer import create_answer
from engine.advisor.advice.contenders import Contender
from engine.advisor.advice.estimates import UNCALIBRATED
from engine.advisor.advice.setups import list_setups
from engine.advisor.advice.state import AdviceState
from engine.advisor.advice.trial_files import Footprint
from engine.contract.advice import AdviceRequest
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.system import paths

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, devices=("cpu",))


@pytest.fixture
def state() -> AdviceState:
    catalogue = load_catalogue()
    state = AdviceState(AdviceRequest(job=JOB), catalogue)
    state.queue = [Contender(setup) for setup in list_setups(JOB, catalogue) if not setup.refusal]
    assert state.queue
    return state


def test_answer_without_time_gives_remedy(state: AdviceState) -> None:
    result = create_answer(state)
    assert not result.fits
    assert result.sentence == "The time was up before any step was measured. Give it more."
    assert {left.kind for left in result.left_out} == {"time"}
    state.record_stop()
    assert create_answer(state).sentence == "It was stopped before anything was measured."


def test_fastest_candidate_does_not_count_as_slower(state: AdviceState) -> None:
    first, second = state.queue[:2]
    state.contenders = [first, second]
    first.state, first.why, first.steps, second.steps = "slower", "A step takes longer.", [0.1] * 3, [0.2] * 3
    row = create_answer(state).table[0]
    assert (row.name, row.state, row.why) == (first.setup.name, "measured", "")


def test_footprint_timeout_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def too_slow(*_args: object, **_options: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(trials, "run_workers", too_slow)
    assert trials.measure_footprint(JOB, tmp_path, 0.1) is None


def test_calibration_counts_variants_that_it_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    advising = advisor._Advisor(AdviceRequest(job=JOB), lambda _progress: None)
    advising.state.footprint = Footprint(
        parameter_bytes=1, trained_bytes=1, last_bytes=1, buffer_bytes=1, block_bytes=1, base_bytes=1, limits=(9000, 1000),
        image_bytes=1, prefetched_batches=1, activations=None, checkpointed_activations=None, train_images=1, val_images=1,
        resolved_precision="fp32",
    )  # fmt: skip
    monkeypatch.setattr(advisor, "calibrate", lambda *_arguments: UNCALIBRATED)
    monkeypatch.setattr(advisor, "estimate_bytes", lambda job, *_: 500 if job.training.accumulation > 1 else 5000)
    requested = list_setups(JOB, load_catalogue())[0]
    advising.state.queue, advising.state.considered = [Contender(requested, estimated=0)], 1
    advising._calibrate(Contender(requested, memory=(1, 2)))
    assert [each.setup.job.training.accumulation for each in advising.state.queue] == [2]
    assert advising.state.considered == 2
    assert advising.state.create_row(advising.state.queue[0]).limit_bytes == 1000
