"""Sentences that compare measured candidates."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.findings.ranking import NOTHING_FITS, explain_failure, explain_ranking, list_remedies
from engine.contract.advice import Candidate, SkippedCandidates
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job

GPUS = ("GPU-0", "GPU-1")
JOB = Job.from_fields(devices=GPUS, strategy="ddp", batch_size=32)


def row(strategy: str, devices: tuple[str, ...], speed: float | None, **changes: Any) -> Candidate:
    fields = {
        name: changes.pop(name) for name in ("memory_bytes", "data_wait_share", "state", "why") if name in changes
    }
    changes |= {"strategy": strategy, "devices": devices}
    name = f"{strategy} {len(devices)}"
    return Candidate(
        name=name, strategy=strategy, devices=devices, changes=changes, images_per_second=speed, **({"state": "measured"} | fields)
    )  # fmt: skip


def test_ranking_compares_with_one_device_and_rivals() -> None:
    pipeline = {"pipeline_schedule": "1f1b", "microbatches": 8}
    table = [
        row("ddp", GPUS, 800.0, memory_bytes=2 << 30),
        row("fsdp", GPUS, 780.0, memory_bytes=1 << 30),
        row("pipeline", GPUS, 600.0, **pipeline),
        row("fsdp", GPUS, 500.0),
        row("single", GPUS[:1], 400.0),
        row("zero1", GPUS, 300.0),  # of the rivals, only three are compared
    ]
    assert explain_ranking(JOB, load_catalogue(), table) == (
        "ddp 2 is fastest: 800 images/s, 2.00x one device. "
        "fsdp 2 is as fast, and saves 1.0 GiB per device, which this job does not need. "
        "pipeline 2 reaches 75% of that; its bubble takes 11% of its devices' time. single 1 reaches 50% of that."
    )


@pytest.mark.parametrize(
    ("speed", "comparison"),
    [
        (780.0, "model_parallel 2 is as fast."),
        (400.0, "model_parallel 2 reaches 50% of that, since its devices compute one after another."),
    ],
)
def test_ranking_explains_only_slower_rivals(speed: float, comparison: str) -> None:
    table = [row("ddp", GPUS, 800.0), row("model_parallel", GPUS, speed)]
    assert explain_ranking(JOB, load_catalogue(), table) == f"ddp 2 is fastest: 800 images/s. {comparison}"


@pytest.mark.parametrize(
    ("devices", "changes", "reason"),
    [
        (GPUS, {"data_wait_share": 0.5}, "2 GPUs is enough: with more, the step waits for data."),
        (GPUS, {"accumulation": 2}, "2 GPUs is enough: with more, a batch only fits in smaller parts."),
        (("cpu", "cpu"), {}, "2 CPU workers is enough: with more, they would spend more time on communication"),
    ],
)
def test_ranking_explains_why_fewer_devices_suffice(
    devices: tuple[str, ...], changes: dict[str, Any], reason: str
) -> None:
    table = [row("single", devices[:1], 8.0), row("ddp", devices, 4.0, **changes)]
    explanation = explain_ranking(JOB.with_fields(devices=devices), load_catalogue(), table)
    assert explanation.startswith(f"single 1 is fastest: 8.0 images/s. 1 of your {reason}")


def test_remedies_list_what_fits() -> None:
    assert list_remedies([row("ddp", GPUS, None, state="too_large")]) == (NOTHING_FITS,)
    assert list_remedies([row("fsdp", GPUS, 100.0), row("single", GPUS[:1], 25.0)]) == (
        "It fits with fsdp 2: 100 images/s.",
        "It fits with single 1: 25 images/s, 75% slower than the first.",
    )


def test_failure_names_the_cause() -> None:
    failed, too_large = (
        row("ddp", GPUS, None, state="failed", why="No such file."),
        row("ddp", GPUS, None, state="too_large"),
    )
    slower = row("single", GPUS[:1], None, state="slower")
    for table, expected in (
        ([failed], "Nothing that was tried could train: No such file."),
        ([failed, too_large], "Nothing that was tried could train: No such file."),
        ([too_large, too_large], "Nothing that was tried fits into memory."),
        ([too_large, slower], "The time was up before any step was measured. Give it more."),
        ([], "Nothing could be tried."),
    ):
        assert explain_failure(table, [], is_stopped=False) == expected
    late = SkippedCandidates("time", ("ddp",), "The time was up.")
    assert explain_failure([], [late], is_stopped=False).startswith("The time was up")
    assert explain_failure([], [late], is_stopped=True).startswith("It was stopped")
