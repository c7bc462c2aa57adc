"""Layouts of ranks, stages and microbatches, compared with those of PyTorch's schedules."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS, Job
from engine.parallel.layout import (
    ParallelDims,
    choose_microbatches,
    compute_layout,
    stage_ranks,
    supports_microbatches,
)
from engine.strategies.pipelining.schedules import MULTI, SINGLE

SCHEDULES = st.sampled_from(FIELDS["pipeline_schedule"].choices)


def torch_schedule(schedule: str, microbatches: int, devices: int, places: tuple[int, ...]) -> Any:
    """Return torch's schedule for the stages of the first device. `places` is the device of each stage.

    Raises ValueError if torch rejects the number of microbatches.
    """
    # Before its first step a schedule reads only these attributes of a rank's stages.
    stages: list[Any] = [
        SimpleNamespace(
            group_size=devices,
            group_rank=0,
            num_stages=len(places),
            stage_index=stage,
            is_last=stage == len(places) - 1,
            has_backward=True,
            submod=nn.Identity(),
        )
        for stage, place in enumerate(places)
        if place == 0
    ]
    if schedule in SINGLE:
        return SINGLE[schedule](stages[0], microbatches, loss_fn=sum)
    return MULTI[schedule](stages, microbatches, loss_fn=sum)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", FIELDS["pipeline_schedule"].choices)
def test_fits_agrees_with_torch(schedule: str, devices: int) -> None:
    places = stage_ranks(schedule, devices, None)
    for microbatches in range(1, 18):
        try:
            torch_schedule(schedule, microbatches, devices, places)
        except ValueError:
            assert not supports_microbatches(schedule, microbatches, devices), microbatches
        else:
            assert supports_microbatches(schedule, microbatches, devices), microbatches


@pytest.mark.parametrize("schedule", list(MULTI))
def test_stage_ranks_match_torch_schedules(schedule: str) -> None:
    for devices in (2, 3, 4):
        places = stage_ranks(schedule, devices, None)
        schedule_object = torch_schedule(schedule, devices * 2, devices, places)
        for rank, actions in schedule_object.pipeline_order.items():
            computed = {action.stage_index for action in actions if action is not None}
            assert computed == {stage for stage, place in enumerate(places) if place == rank}


@given(st.integers(1, 400), st.integers(1, 12), SCHEDULES)
def test_chosen_microbatches_divide_the_batch(batch: int, devices: int, schedule: str) -> None:
    chosen = choose_microbatches(batch, devices, schedule)
    possible = [n for n in range(1, batch + 1) if batch % n == 0 and supports_microbatches(schedule, n, devices)]
    if chosen is None:
        assert possible == []
    else:
        assert chosen in possible
        assert all(abs(chosen - 4 * devices) <= abs(other - 4 * devices) for other in possible)


def test_choosing_microbatches_is_fast() -> None:
    assert choose_microbatches(1_000_000, 8, "zb1p") == 32


@pytest.mark.parametrize(
    ("fields", "expected", "sizes"),
    [
        ({"strategy": "single", "devices": ("cpu",)}, (1, 1, (), None), ParallelDims()),
        ({"strategy": "ddp", "devices": ("cpu",) * 3}, (1, 3, (), None), ParallelDims(replicate=3)),
        (
            {"strategy": "hsdp", "devices": ("cpu",) * 6, "replicas": 3},
            (3, 2, (), None),
            ParallelDims(replicate=3, shard=2),
        ),
        ({"strategy": "model_parallel", "devices": ("cpu",) * 3}, (1, 3, (0, 1, 2), 1), ParallelDims(pipeline=3)),
        ({"strategy": "dp", "devices": ("cpu",) * 2}, (1, 2, (), None), ParallelDims()),
        ({"strategy": "pipeline", "devices": ("cpu",) * 2}, (1, 2, (0, 1), 8), ParallelDims(pipeline=2)),
        (
            {
                "strategy": "pipeline",
                "devices": ("cpu",) * 2,
                "pipeline_schedule": "interleaved_1f1b",
                "stages_per_device": 3,
            },
            (1, 2, (0, 1) * 3, 8),
            ParallelDims(pipeline=2),
        ),
        (
            {"strategy": "pipeline", "devices": ("cpu",) * 2, "pipeline_schedule": "zbv"},
            (1, 2, (0, 1, 1, 0), 8),
            ParallelDims(pipeline=2),
        ),
        (
            {"strategy": "ddp_pipeline", "devices": ("cpu",) * 4, "accumulation": 4, "microbatches": 2},
            (2, 2, (0, 1), 2),
            ParallelDims(replicate=2, pipeline=2),
        ),
        (
            {"strategy": "ddp_pipeline", "devices": ("cpu",) * 4, "accumulation": 4},
            (2, 2, (0, 1), 4),
            ParallelDims(replicate=2, pipeline=2),
        ),
    ],
)
def test_layout_follows_the_strategy(fields: dict[str, Any], expected: tuple[Any, ...], sizes: ParallelDims) -> None:
    job = Job.from_fields(**fields)
    strategy = load_catalogue().strategy(job.resolved_strategy)
    assert strategy is not None
    layout = compute_layout(job, strategy)
    assert tuple(layout) == expected
    assert ParallelDims.of(strategy, layout) == sizes
    for place in range(expected[1]):
        assert layout.stages_at(place) == tuple(stage for stage, holder in enumerate(expected[2]) if holder == place)
    without = msgspec.structs.replace(strategy, mesh=("replicate",))
    assert compute_layout(job, without).stages == 0


def test_inner_dimensions_change_first() -> None:
    sizes = ParallelDims(replicate=2, shard=3, pipeline=2, tensor=2)
    assert [sizes.coordinate(rank) for rank in range(24)] == list(
        itertools.starmap(ParallelDims, itertools.product(*map(range, sizes)))
    )
