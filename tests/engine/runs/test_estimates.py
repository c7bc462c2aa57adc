"""Estimated remaining time and memory of runs, compared with manual calculations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.devices import DeviceSample
from engine.contract.events import (
    ENCODE,
    AnyEvent,
    DevicesSampled,
    Planned,
    RunDevice,
    RunStarted,
    StepMetrics,
    Validation,
)
from engine.contract.job import Job, save_job
from engine.runs.estimates import MAX_PAST_RUNS, PastRun, estimate, estimate_remaining_s, read_past_run, read_past_runs
from engine.runs.folder import RunFolder

RTX = "RTX 6000"
JOB = Job.from_fields(
    model="resnet18", epochs=10, batch_size=32, image_size=100, devices=("GPU-a",), precision="bf16", strategy="single"
)
PAST = PastRun(
    run_id="past", job=JOB, device_kinds=(RTX,), image_size=100, images_per_second=200.0, validated_per_second=500.0,
    memory_bytes=6 << 30,
)  # fmt: skip
IMAGES = (4000, 1000)
EPOCH_S = 4000 / 200 + 1000 / 500


def change_past_run(**fields: Any) -> PastRun:
    return msgspec.structs.replace(PAST, job=PAST.job.with_fields(**fields))


def seconds(job: Job, *past: PastRun) -> float:
    found = estimate(job, 100, (RTX,), IMAGES, past)
    assert found is not None
    return found.seconds


def test_estimate_multiplies_epochs_by_their_images() -> None:
    found = estimate(JOB, 100, (RTX,), IMAGES, [PAST])
    assert found is not None
    assert found.seconds == pytest.approx(10 * EPOCH_S) == pytest.approx(220)
    assert (found.memory_bytes, found.is_upper_bound, found.run_id, found.is_scaled) == (6 << 30, False, "past", False)


def test_estimate_without_validations_assumes_a_third_of_a_step() -> None:
    past = msgspec.structs.replace(PAST, validated_per_second=None)
    assert seconds(JOB, past) == pytest.approx(10 * (4000 / 200 + 1000 / 600))


@pytest.mark.parametrize(
    ("size", "kinds", "factor"), [(200, (RTX,), 4.0), (100, (RTX, RTX), 0.5), (50, (RTX, RTX), 0.125)]
)
def test_estimate_scales_with_pixels_and_devices(size: int, kinds: tuple[str, ...], factor: float) -> None:
    job = JOB.with_fields(devices=tuple(f"GPU-{number}" for number in range(len(kinds))), strategy="ddp")
    found = estimate(job, size, kinds, IMAGES, [PAST])
    assert found is not None
    assert found.seconds == pytest.approx(220 * factor)
    assert found.is_scaled
    assert found.memory_bytes is None  # another image size or strategy


def test_estimate_prefers_the_closest_run() -> None:
    for fields in ({"strategy": "ddp"}, {"precision": "fp32"}, {"batch_size": 8}):
        slow = msgspec.structs.replace(change_past_run(**fields), images_per_second=20.0)
        assert seconds(JOB, slow, PAST) == pytest.approx(220)
        assert seconds(JOB.with_fields(**fields), PAST, slow) == pytest.approx(10 * (200 + 2))
    smaller, pair = (
        msgspec.structs.replace(PAST, **changes) for changes in ({"image_size": 50}, {"device_kinds": (RTX, RTX)})
    )
    assert seconds(JOB, smaller, pair) == pytest.approx(2 * 220), "the image size matters most"
    for changes in ({"device_kinds": (RTX, RTX)}, {"image_size": 50}):
        assert seconds(JOB, msgspec.structs.replace(slow, job=JOB, **changes), PAST) == pytest.approx(220)


@pytest.mark.parametrize(
    ("fields", "memory_gib", "is_upper_bound"),
    [
        ({}, 6, False),
        ({"batch_size": 16}, 4, True),  # closest to the run with 8 images
        ({"batch_size": 4}, 2, True),
        ({"batch_size": 64}, 12, True),
        ({"batch_size": 96}, 18, True),
        ({"batch_size": 64, "accumulation": 2}, 6, False),
        ({"batch_size": 12}, 3, True),
        ({"batch_size": 28}, 6, True),
        ({"ema_decay": 0.9}, None, False),
        ({"precision": "fp32"}, None, False),
        ({"optimizer": "adamw"}, None, False),
        ({"activation_checkpointing": True}, None, False),
        ({"cpu_offload": True}, None, False),
    ],
)
def test_memory_is_an_upper_bound_for_other_batch_sizes(
    fields: dict[str, Any], memory_gib: int | None, is_upper_bound: bool
) -> None:
    older = msgspec.structs.replace(PAST, memory_bytes=9 << 30)
    small = msgspec.structs.replace(change_past_run(batch_size=8), memory_bytes=2 << 30)
    found = estimate(JOB.with_fields(**fields), 100, (RTX,), IMAGES, [PAST, small, older])
    assert found is not None
    assert found.memory_bytes == (None if memory_gib is None else memory_gib << 30)
    assert found.is_upper_bound == is_upper_bound


OTHERS = [change_past_run(model="vit_b_16"), change_past_run(task="detection"), change_past_run(encoder="resnet50")]


@pytest.mark.parametrize(
    "past", [[], *([each] for each in OTHERS), [msgspec.structs.replace(PAST, device_kinds=(RTX, "H100"))]]
)
def test_estimate_is_none_without_a_run_of_the_model(past: list[PastRun]) -> None:
    assert estimate(JOB, 100, (RTX,), IMAGES, past) is None


def test_estimate_is_none_for_other_devices() -> None:
    assert estimate(JOB, 100, ("H100",), IMAGES, [PAST]) is None
    assert estimate(JOB, 100, (RTX, "H100"), IMAGES, [PAST]) is None


def step(number: int, images_per_second: float) -> StepMetrics:
    return StepMetrics(
        epoch=1, step=number, loss=1.0, learning_rate=0.1, images_per_second=images_per_second, data_wait_s=0.0,
        compute_s=0.1, time=1000.0 + number,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a run that has trained from step 10 to step 30 of 100 in 30 seconds, after an execution on two devices."""
    folder = tmp_path / "run"
    folder.mkdir()
    save_job(JOB, folder / "job.toml")
    used = [2 << 30, 5 << 30, 4 << 30]
    device = RunDevice(id="GPU-a", name=f"{RTX} (GPU 1)", ranks=(0,))
    first, pair = (
        RunDevice(id="GPU-b", name="H100", ranks=(1,)),
        JOB.with_fields(devices=("GPU-a", "GPU-b"), strategy="ddp"),
    )
    events: list[AnyEvent] = [
        RunStarted(run_id="run", job=pair, devices=(first,), world_size=2, environment={}, supervisor_pid=1),
        step(1, 900.0), step(2, 900.0), Validation(epoch=1, step=2, measures={}, images=900, seconds=0.5),
        *(DevicesSampled(samples=(DeviceSample(device="GPU-a", memory_used_bytes=each),)) for each in (0, 9 << 30)),
        RunStarted(run_id="run", job=JOB, devices=(device,), world_size=1, environment={}, supervisor_pid=1),
        Planned(
            epochs=10, steps_per_epoch=10, train_images=320, val_images=100, classes=("a", "b"), image_size=96,
            parameters=1, trainable_parameters=1, time=1000.0, from_step=10,
        ),
        *(step(10 * number, speed) for number, speed in ((1, 90.0), (2, 210.0), (3, 200.0))),
        *(
            DevicesSampled(
                samples=(
                    DeviceSample(device="cpu", memory_used_bytes=9 << 30),
                    DeviceSample(device="GPU-a", memory_used_bytes=each),
                    DeviceSample(device="GPU-b"),
                )
            )
            for each in used
        ),
        *(Validation(epoch=number, step=30, measures={}, images=100 * number, seconds=0.5) for number in (1, 2)),
    ]  # fmt: skip
    lines = [ENCODE.encode(msgspec.structs.replace(event, n=number)) for number, event in enumerate(events, 1)]
    (folder / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return RunFolder(folder)


def test_past_run_is_read_from_its_log(run: RunFolder) -> None:
    past = read_past_run(run)
    assert past is not None
    assert (past.device_kinds, past.image_size) == ((RTX,), 96)
    assert (past.images_per_second, past.validated_per_second) == (200.0, 300.0)
    assert past.memory_bytes == 3 << 30
    assert [each.run_id for each in read_past_runs(JOB, [run.summary()], {})] == ["run"]
    assert read_past_runs(JOB.with_fields(model="vit_b_16"), [run.summary()], {}) == []
    assert read_past_runs(JOB, [run.summary()] * (MAX_PAST_RUNS + 1), {}) == [past] * MAX_PAST_RUNS
    for state, expected in (("completed", []), ("running", [past])):  # only an unfinished run is read again
        summary = msgspec.structs.replace(run.summary(), state=state)
        assert read_past_runs(JOB, [summary], {"run": None}) == expected


@pytest.mark.parametrize("images_per_second", [None, 0.0])
def test_past_run_without_a_speed_is_not_read(run: RunFolder, images_per_second: float | None) -> None:
    events = list(run.events())
    if images_per_second is None:
        events = [event for event in events if not isinstance(event, StepMetrics)]
    for event in events:
        if isinstance(event, StepMetrics):
            event.images_per_second = images_per_second or 0.0
    run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in events))
    assert read_past_run(run) is None


def test_remaining_time_follows_the_speed_so_far(run: RunFolder) -> None:
    assert estimate_remaining_s(run, 1030.0) == pytest.approx(105.0)
    assert estimate_remaining_s(run, 1060.0) == pytest.approx(210.0)
    assert estimate_remaining_s(run, 990.0) == 0.0, "the clock was set back"
    resumed = [event for event in run.events() if getattr(event, "step", 0) <= 10]  # the plan begins after step 10
    run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in resumed))
    assert estimate_remaining_s(run, 1030.0) is None
