"""Training of jobs that are at the limit of what the checks accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.problems import errors
from tests.support.cases import mark_long_cases

EDGES: dict[str, dict[str, Any]] = {
    "single, an image per part": {"strategy": "single", "cpus": 1, "accumulation": 12},
    "ddp, an image per part": {"strategy": "ddp", "cpus": 2, "accumulation": 6},
    "ddp, unequal parts": {"strategy": "ddp", "cpus": 2, "accumulation": 4, "batch_size": 11},
    "fsdp, unequal parts": {"strategy": "fsdp", "cpus": 2, "accumulation": 4, "batch_size": 11},
    "model parallel, three places": {"strategy": "model_parallel", "cpus": 3, "accumulation": 12},
    "gpipe, one microbatch": {"strategy": "pipeline", "cpus": 2, "microbatches": 1},
    "1f1b, as many as stages": {"strategy": "pipeline", "cpus": 2, "microbatches": 2, "pipeline_schedule": "1f1b"},
    "interleaved, one microbatch": {
        "strategy": "pipeline",
        "cpus": 2,
        "microbatches": 1,
        "pipeline_schedule": "interleaved_1f1b",
    },
    "zb1p, fewer than a round": {"strategy": "pipeline", "cpus": 2, "microbatches": 1, "pipeline_schedule": "zb1p"},
    "zbv, one microbatch": {"strategy": "pipeline", "cpus": 2, "microbatches": 1, "pipeline_schedule": "zbv"},
    "zbv, two microbatches": {"strategy": "pipeline", "cpus": 2, "microbatches": 2, "pipeline_schedule": "zbv"},
    "pipelines, an image per part": {"strategy": "ddp_pipeline", "cpus": 4, "accumulation": 6},
    "pipelines, fewer images than devices": {"strategy": "ddp_pipeline", "cpus": 4, "batch_size": 2},
    "hybrid shards, an image per rank": {"strategy": "hsdp", "cpus": 4, "batch_size": 4},
}
EVERYDAY = ("fsdp, unequal parts", "zbv, one microbatch")


@pytest.mark.parametrize("edge", mark_long_cases(EDGES, EVERYDAY))
def test_jobs_at_limits_of_checks_train(job: Callable[..., Job], start: Callable[..., Any], edge: str) -> None:
    accepted = job(**EDGES[edge])
    assert errors(problems(accepted, load_catalogue())) == []
    start(accepted).completed()
