"""Advisor and search for one of transformers' detectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.advice import AdviceRequest
from engine.contract.job import Job
from tests.engine.advisor.advice.test_advising import run_advisor
from tests.engine.advisor.search.test_driver import start_search, wait_for_final_state
from tests.support.hub_models import NEEDS_TRANSFORMERS
from tests.support.outlined import make_outlined
from tests.support.searches import make_small_search

pytestmark = [NEEDS_TRANSFORMERS, pytest.mark.long, pytest.mark.timeout(600)]
SIDE = 128


@pytest.fixture
def job(tmp_path: Path) -> Job:
    data = make_outlined(tmp_path / "data", {"train": 8, "val": 3}, SIDE)
    return Job.from_fields(
        dataset=str(data), task="detection", model="deimv2_atto", pretrained=False, image_size=SIDE, batch_size=4,
        epochs=1, predictions=0,
    )  # fmt: skip


def test_advisor_measures_setups_of_a_detector(job: Job, tmp_path: Path) -> None:
    *_, last = run_advisor(
        tmp_path / "t", AdviceRequest(job=job.with_fields(devices=("cpu", "cpu"), strategy="ddp"), seconds=60)
    )
    measured = [row for row in last.answer.table if row.images_per_second]
    assert measured
    assert all(row.time is not None and row.time.total_s > 0 for row in measured)


def test_search_tries_rates_of_a_detector(job: Job) -> None:
    ranges = {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}
    state = wait_for_final_state(start_search(make_small_search(job, space=ranges, trials=2, pruner="none")))
    assert state.ended == "completed"
    assert {row.state for row in state.trials} == {"completed"}
