"""Bottlenecks that are found in synthetic step profiles."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.findings.bottleneck import RunProfile, find_bottleneck
from engine.contract.events import RanksTimed, RankTimes
from engine.contract.job import job_from_values
from tests.gui.sources.written_runs import job
from tests.gui.split_points.example import make_trace

GPUS = ("GPU-0", "GPU-1")
BUSY = {"forward": 0.03, "backward": 0.06, "optimizer": 0.007}


def make_profile(
    *, devices: tuple[str, ...] = ("cpu",), of_job: dict[str, Any] | None = None, **changes: Any
) -> RunProfile:
    """Return the profile of a run whose steps take 0.1 s and keep the device busy.

    `of_job` overrides fields of the job, and `changes` override fields of the profile.
    """
    parts = changes.pop("parts", {"data": 0.003, **BUSY})
    values: dict[str, Any] = {
        "job": job(devices=devices, **(of_job or {})), "step_s": sum(parts.values()), "parts": parts, "readers": 2,
        "on_gpu": devices != ("cpu",) * len(devices),
    }  # fmt: skip
    return RunProfile(**(values | changes))


def waiting(share: float, **changes: Any) -> RunProfile:
    busy = sum(BUSY.values())
    return make_profile(parts={"data": busy * share / (1 - share), **BUSY}, **changes)


def test_no_bottleneck() -> None:
    assert find_bottleneck(make_profile()).sentence == "The CPU is busy 97% of the time; there is no bottleneck."
    assert (
        find_bottleneck(make_profile(devices=GPUS)).sentence
        == "The GPUs are busy 97% of the time; there is no bottleneck."
    )
    workers = find_bottleneck(make_profile(devices=("cpu", "cpu")))
    assert workers.sentence == "The CPU workers are busy 97% of the time; there is no bottleneck."
    assert workers.field == ""


def test_slow_loading_with_spare_cores_adds_workers() -> None:
    # 0.097 s of computing and 0.67 thread-seconds of decoding: seven threads keep up, eight with headroom.
    given = find_bottleneck(waiting(0.38, devices=GPUS, decoding_s=0.67, spare_cores=15))
    assert given.sentence == "The GPUs wait 38% of the time for images: 6 more loader workers would feed them."
    assert (given.field, given.value, given.live) == ("loader_workers", 8, True)


def test_slow_loading_adds_at_most_spare_cores() -> None:
    given = find_bottleneck(waiting(0.38, devices=GPUS, decoding_s=0.67, spare_cores=3))
    assert given.sentence.endswith(": 1 more loader worker would help.")
    assert given.value == 3


def test_slow_loading_without_workers_changes_next_run() -> None:
    given = find_bottleneck(waiting(0.5, readers=0, decoding_s=0.1, spare_cores=4))
    assert given.sentence == "The CPU waits 50% of the time for images: 2 loader workers would feed it."
    assert (given.value, given.live) == (2, False)


def test_slow_loading_in_first_epoch_has_no_change() -> None:
    given = find_bottleneck(waiting(0.3, decoding_s=0.2))
    assert given.sentence.endswith("each image is decoded only in the first epoch, if there is room to cache them.")
    assert given.field == ""
    later = find_bottleneck(waiting(0.3, decoding_s=0.2, epochs_before=1))
    assert later.sentence.endswith("and no room to cache all decoded images.")
    elsewhere = find_bottleneck(waiting(0.3, readers=None))
    assert elsewhere.sentence.endswith("for images, which another worker loads.")


def test_slow_loading_in_later_epochs_turns_cache_on() -> None:
    given = find_bottleneck(waiting(0.3, decoding_s=0.2, epochs_before=2, of_job={"picture_cache": "off"}))
    assert (given.field, given.value, given.live) == ("picture_cache", "auto", False)
    cached = [find_bottleneck(waiting(0.3, of_job={"picture_cache": cache})) for cache in ("disk", "memory")]
    assert [(each.field, each.value) for each in cached] == [("picture_cache", "memory"), ("", "")]


def test_straggler_is_named() -> None:
    slow = RankTimes(compute_s=0.1, communication_s=0.02, waiting_s=0.0)
    first = RankTimes(compute_s=0.07, communication_s=0.02, waiting_s=0.03)
    last = RankTimes(compute_s=0.05, communication_s=0.02, waiting_s=0.05)
    for ranks, who in (((first, slow), "the other waits 25%"), ((first, slow, last), "the others wait 33%")):
        timed = RanksTimed(step=9, ranks=ranks, straggler=1)
        given = find_bottleneck(make_profile(devices=GPUS, of_job={"strategy": "ddp"}, ranks=timed))
        assert given.sentence == (
            f"Rank 1 is the slowest: {who} of each step for it. Splitting each batch by measured speed evens that out."
        )
        assert (given.field, given.value) == ("balance", "speed")
    given = find_bottleneck(make_profile(devices=GPUS, of_job={"strategy": "ddp", "balance": "speed"}, ranks=timed))
    assert given.sentence.endswith(", although batches are split by measured speed.")


@pytest.mark.parametrize(
    ("of_job", "devices", "field", "value"),
    [
        ({"strategy": "ddp"}, GPUS, "gradient_compression", "bf16"),
        ({"strategy": "ddp", "gradient_compression": "bf16", "batch_size": 64}, GPUS, "batch_size", 128),
        ({"strategy": "ddp", "batch_size": 64}, ("cpu", "cpu"), "batch_size", 128),
        ({"strategy": "fsdp"}, GPUS, "strategy", "ddp"),
        ({"strategy": "zero1"}, GPUS, "strategy", "ddp"),
    ],
)
def test_communication_advice_depends_on_strategy(
    of_job: dict[str, Any], devices: tuple[str, ...], field: str, value: object
) -> None:
    given = find_bottleneck(make_profile(devices=devices, of_job=of_job, parts={**BUSY, "communication": 0.05}))
    assert given.sentence.startswith("Averaging gradients takes 34% of the time")
    assert (given.field, given.value) == (field, value)


def test_bubble_advises_more_microbatches_if_divisible() -> None:
    changes: dict[str, Any] = {"devices": GPUS, "trace": make_trace(bubble=0.2, theory=0.15), "microbatches": 4}
    given = find_bottleneck(make_profile(of_job={"strategy": "pipeline", "batch_size": 64}, **changes))
    assert given.sentence == (
        "The devices are idle 20% of each step while the pipeline fills and drains: "
        "8 microbatches instead of 4 reduce that."
    )
    assert (given.field, given.value) == ("microbatches", 8)
    of_job: dict[str, Any]
    for of_job in ({"batch_size": 12}, {"batch_size": 24, "accumulation": 2}):
        assert find_bottleneck(make_profile(of_job={"strategy": "pipeline"} | of_job, **changes)).field == ""
    changes |= {"trace": make_trace(bubble=0.2, theory=0.15, ranks=((),) * 4), "microbatches": 1}
    of_job = {"strategy": "pipeline", "pipeline_schedule": "1f1b"}  # which needs a microbatch for each stage
    assert find_bottleneck(make_profile(of_job=of_job, **changes)).field == ""


def test_bubble_of_unbalanced_stages() -> None:
    given = find_bottleneck(
        make_profile(
            devices=GPUS, of_job={"strategy": "pipeline"}, trace=make_trace(bubble=0.4, theory=0.1), microbatches=4
        )
    )
    assert "40%" in given.sentence
    assert given.sentence.endswith("the stages are unbalanced.")


def test_model_parallel_advises_pipeline() -> None:
    given = find_bottleneck(
        make_profile(devices=GPUS, of_job={"strategy": "model_parallel"}, trace=make_trace(bubble=0.5, theory=0.5))
    )
    assert (given.field, given.value) == ("strategy", "pipeline")


def test_fp32_advises_bf16_unless_loading_costs_more() -> None:
    on_gpu: dict[str, Any] = {"devices": GPUS, "of_job": {"precision": "fp32"}, "native_bf16": True, "decoding_s": 1.0}
    assert find_bottleneck(make_profile(**on_gpu)).field == "precision"
    assert find_bottleneck(waiting(0.3, spare_cores=16, **on_gpu)).field == "precision"
    assert find_bottleneck(waiting(0.6, spare_cores=16, **on_gpu)).field == "loader_workers"
    on_gpu["native_bf16"] = False
    assert find_bottleneck(make_profile(**on_gpu)).field == ""


def test_starved_gpu_advises_larger_batch() -> None:
    given = find_bottleneck(make_profile(devices=GPUS[:1], starved_fraction=0.9, of_job={"batch_size": 32}))
    assert given.sentence.startswith("The GPU runs out of work between steps")
    assert (given.field, given.value) == ("batch_size", 64)
    assert find_bottleneck(make_profile(devices=GPUS[:1], starved_fraction=0.1)).field == ""
    assert find_bottleneck(waiting(0.3, devices=GPUS[:1], starved_fraction=0.9)).field != "batch_size"


def test_other_programs_advise_fewer_threads() -> None:
    given = find_bottleneck(make_profile(cpu_wait_fraction=0.4, computing_threads=2))
    assert given.sentence == (
        "Other programs are using the CPU: 40% of each step is spent waiting for a core. "
        "With 1 thread instead of 2, threads would wait less for each other."
    )
    assert (given.field, given.value) == ("cpu_threads", 1)
    assert find_bottleneck(make_profile(cpu_wait_fraction=0.4)).sentence.endswith(
        "40% of each step is spent waiting for a core."
    )
    assert "no bottleneck" in find_bottleneck(make_profile(cpu_wait_fraction=0.4, decoding_s=0.1)).sentence, (
        "the load is its decoding"
    )
    assert "no bottleneck" in find_bottleneck(make_profile(cpu_wait_fraction=0.4, devices=GPUS)).sentence


def test_changes_are_valid_job_values() -> None:
    situations = [
        waiting(0.38, decoding_s=0.67, spare_cores=15),
        waiting(0.3, decoding_s=0.2, epochs_before=2, of_job={"picture_cache": "off"}),
        waiting(0.3, of_job={"picture_cache": "disk"}),
        make_profile(devices=GPUS, of_job={"strategy": "ddp"}, parts={**BUSY, "communication": 0.05}),
        make_profile(devices=GPUS, starved_fraction=1.0),
        make_profile(cpu_wait_fraction=0.5, computing_threads=4),
        make_profile(devices=GPUS, native_bf16=True, of_job={"precision": "fp32"}),
    ]
    for each in situations:
        given = find_bottleneck(each)
        assert given.field
        _job, problems = job_from_values({given.field: given.value})
        assert problems == []
