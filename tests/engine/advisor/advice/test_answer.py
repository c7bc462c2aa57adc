"""Answers of the advisor, from given measurements."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.advisor.advice import advisor, trials
from engine.advisor.advice.answer import create_answer
from engine.advisor.advice.contenders import Contender
from engine.advisor.advice.estimates import UNCALIBRATED
from engine.advisor.advice.setups import list_setups
from engine.advisor.advice.state import AdviceState
from engine.advisor.advice.trial_files import (
    Activations,
    Footprint,
    LinkSpeed,
    RankMeasurements,
    Rehearsal,
    TrialRequest,
)
from engine.contract.advice import AdviceRequest
from engine.contract.catalogue import load_catalogue
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.system import paths
from tests.engine.advisor.advice.test_estimates import FOOTPRINT

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, devices=("cpu",))
ON_GPUS = JOB.with_fields(strategy="ddp", devices=("GPU-0", "GPU-1", "GPU-2", "GPU-3"), batch_size=32, epochs=3)


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


@pytest.fixture
def measured(state: AdviceState) -> tuple[Contender, Contender]:
    """Contenders on one GPU and on four, whose steps take 0.4 s and 0.5 s, in a state with their measurements."""
    state.request = AdviceRequest(job=ON_GPUS, machines=3)
    state.footprint, state.import_s, state.queue = FOOTPRINT, 1.0, []
    setups = list_setups(ON_GPUS, state.catalogue)  # the requested one with DDP comes first
    single = next(setup for setup in setups if setup.job.parallel.strategy == "single")
    alone, several = (Contender(each, "measured", [0.4] * 3, startup_s=2.0) for each in (single, setups[0]))
    # A line through the times of 8 and 32 images: 0.04 s for a step, and 11.25 ms for an image.
    alone.measured = RankMeasurements(
        step_s=(), memory={}, worked_s=1.0, smaller_step_s=0.13, smaller_batch=8, joules_per_image=0.5
    )
    several.steps, several.measured = [0.5] * 3, RankMeasurements(step_s=(), memory={}, worked_s=1.0)
    state.contenders = [several, alone]
    return alone, several


@pytest.mark.parametrize(
    ("step_s", "load_rate", "expected"),
    [
        (0.5, None, ["From a batch of about 44 on, 4 GPUs", "144 images/s"]),
        (0.3, None, ["Below a batch of about 20, one device", "186 images/s"]),
        (0.14, None, []),  # below a batch of 2
        (0.225, 100, ["Below a batch of about 23", "180 images/s", "more loader workers"]),
        (18.0, None, [" 7 images/s"]),  # far larger batches
        (0.12, None, []),
    ],
)
def test_answer_predicts_changes(
    state: AdviceState,
    measured: tuple[Contender, Contender],
    step_s: float,
    load_rate: float | None,
    expected: list[str],
) -> None:
    alone, several = measured
    several.steps = [step_s] * 3
    assert several.measured is not None
    several.measured = msgspec.structs.replace(several.measured, load_rate=load_rate)
    changes = create_answer(state).what_would_change
    assert [text in change for text, change in zip(expected, changes, strict=True)] == [True] * len(expected)
    state.contenders.remove(alone)
    assert create_answer(state).what_would_change == ()


def test_answer_predicts_smaller_numbers_of_machines(state: AdviceState, measured: tuple[Contender, Contender]) -> None:
    found = create_answer(state)
    assert [row.images_per_second for row in found.table] == [80, 64]
    assert [row.joules_per_thousand_images for row in found.table] == [500, None]
    assert [prediction.machines for prediction in found.machines] == [2, 3]
    assert state.machine_step is not None
    assert state.machine_step.fixed_s == pytest.approx(0.04)
    assert found.table[0].time is not None
    steps = found.table[0].time.steps * ON_GPUS.training.epochs
    speed = found.machines[0].images_per_second
    assert found.machines[0].total_s == pytest.approx(found.table[0].time.total_s - steps * (0.4 - 32 / speed))


def test_costs_exclude_the_wait_for_images(state: AdviceState, measured: tuple[Contender, Contender]) -> None:
    alone, _ = measured
    assert alone.measured is not None
    alone.measured = msgspec.structs.replace(alone.measured, load_rate=64)
    alone.steps[0] = 0.35
    costs = state.costs
    assert costs is not None
    assert (costs.step_s, costs.min_s, costs.fixed_s) == pytest.approx((0.5, 0.35, 0.04))
    alone.measured = msgspec.structs.replace(alone.measured, smaller_step_s=0.42)  # noise: a smaller batch is slower
    assert state.costs is not None
    assert state.costs.fixed_s == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("rehearsed", "start_s", "step_s", "validation_s", "measured_parts"),
    [
        (None, 0.2 + 1 + 2, 0.4, 100 / 32 * 0.4 / 3, ("start", "step")),
        ("several", 0.2 + 1 + 5 + 31 * 0.1, 0.2 * 0.8 + 0.1 / 31, 2 * 0.8 + 0.5, ("start", "step")),
        ("alone", 0.2 + 1 + 5 + 31 * 0.1, 0.2 + 0.1 / 31, 2.5, ("start", "step", "data")),
    ],
)
def test_job_time_is_predicted_from_the_rehearsal(
    state: AdviceState,
    measured: tuple[Contender, Contender],
    rehearsed: str | None,
    *,
    start_s: float,
    step_s: float,
    validation_s: float,
    measured_parts: tuple[str, ...],
) -> None:
    alone, several = measured
    if rehearsed is not None:
        state.rehearsed, state.startup_s = (alone if rehearsed == "alone" else several), 5.0
        state.rehearsal = Rehearsal(
            cold_step_s=0.3, warm_step_s=0.2, start_s=0.1, validation_s=2.0, validated=0.9, save_s=0.5
        )
    found = state.predict_job_time(alone)
    assert found is not None
    epochs = ON_GPUS.training.epochs
    assert (found.start_s, found.step_s, found.validation_s) == pytest.approx((start_s, step_s, validation_s))
    assert found.total_s == pytest.approx(start_s + epochs * (31 * step_s + validation_s))
    assert found.measured == measured_parts
    assert sorted((*found.measured, *found.estimated)) == ["data", "start", "step", "validation"]
    alone.measured = None
    assert state.predict_job_time(alone) is None


MEASURED = RankMeasurements(step_s=(0.2,), memory={"GPU 0": (5, 16), "GPU 1": (4, 8)}, worked_s=1.0, load_rate=7.0)


@pytest.mark.parametrize(
    ("outcome", "steps", "expected"),
    [
        (None, [], ("slower", "It took over 7 s to try.", [])),
        (None, [0.1], ("measured", "", [0.1])),
        (Failed(cause="No memory.", kind="out_of_memory"), [0.1], ("too_large", "Out of memory.", [])),
        (Failed(cause="No file."), [0.1], ("failed", "No file.", [])),
        ([MEASURED, MEASURED], [0.1], ("measured", "", [0.1, 0.2])),
        (
            [msgspec.structs.replace(MEASURED, gave_up=True)],
            [],
            ("slower", "A step takes over 1.3 times as long as the fastest's.", [0.2]),
        ),
    ],
)
def test_trial_sets_state_of_contender(
    state: AdviceState,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    outcome: list[RankMeasurements] | Failed | None,
    steps: list[float],
    expected: tuple[str, str, list[float]],
) -> None:
    monkeypatch.setattr(trials, "_run_trial", lambda *_arguments: outcome)
    contender = state.queue[0]
    contender.steps, contender.why = list(steps), "earlier"
    earlier = msgspec.structs.replace(
        MEASURED, link=LinkSpeed(1e9, 0.0, 2), smaller_step_s=0.1, smaller_batch=8, load_rate=9.0
    )
    contender.measured = earlier if steps else None
    trials.try_setup(contender, TrialRequest(), tmp_path, 7.0)
    assert (contender.state, contender.why, contender.steps) == expected
    latest = outcome[0] if isinstance(outcome, list) else None
    merged = msgspec.structs.replace(earlier, load_rate=7.0) if latest is not None else earlier
    assert contender.measured == (merged if steps else latest)
    assert contender.memory == ((4, 8) if isinstance(outcome, list) else None)
    assert contender.startup_s == (contender.wall_s - 1.0 if isinstance(outcome, list) else 0.0)


def test_footprint_timeout_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs: list[Job] = []

    def too_slow(job: Job, *_args: object, **_options: object) -> None:
        jobs.append(job)
        raise TimeoutError

    monkeypatch.setattr(trials, "run_workers", too_slow)
    assert trials.measure_footprint(ON_GPUS, tmp_path, 0.1) is None
    assert (jobs[0].resolved_strategy, jobs[0].parallel.devices) == ("single", ("GPU-0",))
    failed = Failed(cause="No file.")
    monkeypatch.setattr(trials, "run_workers", lambda *_arguments, **_options: failed)
    assert trials.measure_footprint(ON_GPUS, tmp_path, 0.1) == failed


def test_rehearsal_leaves_choices_of_a_run_open(
    state: AdviceState, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs: list[Job] = []
    monkeypatch.setattr(trials, "_run_trial", lambda job, *_arguments: jobs.append(job))
    contender = state.queue[0]
    assert trials.rehearse(contender, 0.5, tmp_path, 7.0) is None
    chosen = ("memory_format", "cpu_threads", "predictions")
    assert [jobs[0].value(name) for name in chosen] == [contender.setup.job.value(name) for name in chosen]
    assert jobs[0].data.picture_cache == "memory"


@pytest.mark.parametrize(
    ("estimates", "activations", "accumulation"),
    [
        ({1: 5000, 2: 500}, None, 2),
        ({1: 5000, 2: 900}, None, 4),  # too close to the limit
        ({1: 5000, 2: None}, None, 2),
        ({1: 5000, 2: None}, Activations(0, 1, 0), 4),  # the model has no blocks
    ],
)
def test_calibration_counts_variants_that_it_queues(
    monkeypatch: pytest.MonkeyPatch,
    estimates: dict[int, int | None],
    activations: Activations | None,
    accumulation: int,
) -> None:
    advising = advisor._Advisor(AdviceRequest(job=JOB), lambda _progress: None)
    advising.state.footprint = Footprint(
        parameter_bytes=1, trained_bytes=1, last_bytes=1, buffer_bytes=1, block_bytes=1, base_bytes=1, limits=(9000, 1000),
        image_bytes=1, prefetched_batches=1, activations=activations, checkpointed_activations=None, train_images=1, val_images=1,
        resolved_precision="fp32",
    )  # fmt: skip
    monkeypatch.setattr(advisor, "calibrate", lambda *_arguments: UNCALIBRATED)
    monkeypatch.setattr(advisor, "estimate_bytes", lambda job, *_: estimates.get(job.training.accumulation, 500))
    requested, *others = list_setups(JOB, load_catalogue())
    variant = next(setup for setup in others if setup.is_variant)  # which is not varied further
    queued = [Contender(setup, estimated=0) for setup in (requested, requested, variant)]
    advising.state.queue, advising.state.considered = queued, 3
    advising._calibrate(Contender(requested, memory=(1, 2)))
    assert [each.setup.job.training.accumulation for each in advising.state.queue] == [accumulation]
    assert (advising.state.considered, len(advising.state.left_out)) == (4, 3)
    assert advising.state.create_row(advising.state.queue[0]).limit_bytes == 1000
