"""Measurements of the advisor's trials: in workers, and with simulated durations."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pynvml
import pytest
from torch import Tensor

from engine.advisor import batch_worker
from engine.advisor.advice import trial_worker
from engine.advisor.advice.contenders import Contender
from engine.advisor.advice.setups import Setup
from engine.advisor.advice.trial_files import RankMeasurements, TrialRequest, write_request
from engine.advisor.advice.trial_worker import _measure_loading, _rehearse, _Trial, _validate_twice
from engine.advisor.advice.trials import rehearse, try_setup
from engine.advisor.trial_batches import reserve_prefetched
from engine.advisor.trial_results import take_results
from engine.contract.job import Job
from engine.data.loading.base_loader import PREFETCH
from engine.processes import worker_process
from engine.training.report import Reporter
from tests.engine.supervisor.supervised import make_images
from tests.support.clock import Clock
from tests.support.specs import make_worker_spec
from tests.support.worker_group import Forker


@pytest.fixture
def job(tmp_path: Path) -> Job:
    images = make_images(tmp_path / "images", 24)  # 48 of them for training, and 12 for validation
    return Job.from_fields(
        dataset=str(images), model="mnist_cnn", strategy="single", devices=("cpu",), batch_size=4, loader_workers=1
    )


def test_trial_measures_what_is_requested(
    job: Job, forker: Forker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_spawn", forker.spawn)
    (tmp_path / "trial").mkdir()
    setup = Setup(job.with_fields(strategy="ddp", devices=("cpu", "cpu"), batch_size=12), "DDP")
    contender = Contender(setup)
    request = TrialRequest(min_steps=5, seconds=0.0, times_smaller=True, times_link=True)
    try_setup(contender, request, tmp_path / "trial", 300.0)
    measured = contender.measured
    assert measured is not None
    assert (contender.state, contender.trials, len(contender.steps)) == ("measured", 1, 5)
    assert 0 < contender.startup_s < contender.wall_s
    assert (measured.smaller_batch, measured.gave_up, measured.rehearsal) == (4, False, None)
    assert measured.smaller_step_s
    assert measured.load_rate
    assert measured.link is not None
    assert measured.link.ranks == 2
    assert measured.backward_share is not None
    assert 0 < measured.backward_share < 1
    assert measured.joules_per_image is None
    result = rehearse(contender, 0.5, tmp_path / "trial", 300.0)
    assert result is not None
    rehearsal, startup_s = result
    assert startup_s > 0
    assert rehearsal.validated == 1
    assert 0 < rehearsal.save_s < rehearsal.validation_s + 10
    assert [path.name for path in (tmp_path / "trial").glob("*.pt")] == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trial_worker, "time", clock)
    monkeypatch.setattr(trial_worker, "clock", lambda _device: clock.now)
    return clock


@pytest.fixture
def trial(job: Job, tmp_path: Path) -> Iterator[_Trial]:
    channel, other_end = socket.socketpair()
    reporter = Reporter(channel, 0, on_end=lambda: None)
    request = TrialRequest(give_up_s=0.5, rehearse_s=2.0)
    with channel, other_end:
        spec = make_worker_spec(job.with_fields(predictions=0), run_folder=str(tmp_path))
        yield _Trial(spec, reporter, request)
        reporter.close()


def simulate_steps(
    trial: _Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch, durations: list[float]
) -> tuple[Iterator[Any], Iterator[float]]:
    """Let the steps of a trial last as long as given. Return a batch for each of them, and the unused durations."""
    unused = iter(durations)

    def step(*_arguments: object) -> None:
        clock.now += next(unused)

    monkeypatch.setattr(trial.strategy, "step", step)
    return iter([object()] * len(durations)), unused


@pytest.mark.parametrize(
    ("durations", "limits", "timed"),
    [
        ([0.4, 0.1, 0.2, 0.3, 0.4], (1, 2, 0.35), [0.1, 0.2, 0.3]),
        ([0.4, 0.4, 0.1, 0.2, 0.3], (2, 2, 0.0), [0.1, 0.2]),
        ([0.1, 0.2], (0, 5, 0.0), [0.1, 0.2]),  # no more batches
        ([0.1, 0.6, 0.2, 0.6, 0.1], (1, 5, 0.0), [0.6, 0.2, 0.6]),  # a step is too slow after a second
        ([1.1, 0.6], (2, 5, 0.0), []),
    ],
)
def test_steps_are_timed_until_enough_or_too_slow(
    trial: _Trial,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    durations: list[float],
    *,
    limits: tuple[int, int, float],
    timed: list[float],
) -> None:
    batches, _ = simulate_steps(trial, clock, monkeypatch, durations)
    warm_up, min_steps, seconds = limits

    def is_true_on_any_rank(flag: bool) -> bool:
        clock.now += 0.001  # not part of the measured time
        return flag

    monkeypatch.setattr(trial, "is_true_on_any_rank", is_true_on_any_rank)
    assert trial.time_steps(batches, warm_up=warm_up, min_steps=min_steps, seconds=seconds) == pytest.approx(timed)


def test_rehearsed_steps_are_timed_until_they_are_late(
    trial: _Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, unused = simulate_steps(trial, clock, monkeypatch, [0.5, 0.2, 0.4, 9.0])
    assert trial_worker._train(trial, batches, 1.0) == pytest.approx([0.5, 0.2, 0.4])
    assert list(unused) == [9.0]


@pytest.mark.parametrize(
    ("loading_s", "rate"),
    # Images of a batch, divided by the duration of a load in the second pass. The epoch has 12 batches.
    [([0.1] * 3 + [0.5] * 3 + [math.nan], 4 / 0.5), ([0.01] * 13 + [0.02] * 12, 4 / 0.02), ([math.inf] * 2, None)],
)
def test_loading_is_timed_in_the_second_pass(
    trial: _Trial,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    loading_s: list[float],
    rate: float | None,
) -> None:
    durations = iter(loading_s)
    load = trial_worker._load_batch

    def load_batch(batches: Any) -> bool:
        seconds = next(durations)
        clock.now += seconds if seconds < math.inf else 0.0
        return load(batches) and seconds < math.inf

    monkeypatch.setattr(trial_worker, "_load_batch", load_batch)
    found = _measure_loading(trial)
    assert found == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    ("error", "is_loaded"),
    [(None, True), (StopIteration(), False), (MemoryError(), False), (RuntimeError("other"), None)],
)
def test_batch_that_exceeds_the_memory_is_not_loaded(error: Exception | None, is_loaded: bool | None) -> None:
    batches = Mock(__next__=Mock(side_effect=[error]))
    with pytest.raises(RuntimeError, match="other") if is_loaded is None else nullcontext():
        assert trial_worker._load_batch(batches) is is_loaded


def test_link_transfers_the_counted_bytes(trial: _Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(load: Tensor) -> None:
        clock.now += 0.01 + load.nbytes / 1e9

    monkeypatch.setattr(trial_worker, "dist", Mock(get_world_size=lambda: 2, all_reduce=all_reduce))
    found = trial_worker._measure_link(trial)
    assert found is not None
    assert (found.bytes_per_second, found.latency_s) == pytest.approx((1e9, 0.01), rel=0.01)
    assert found.ranks == 2


def test_energy_per_image_is_that_of_a_typical_step(
    trial: _Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_worker, "_time_steps", lambda *_arguments, **_options: ([1.0, 2.0, 6.0], 8.0))
    monkeypatch.setattr(trial_worker, "_measure_loading", lambda _trial: None)
    # The original would limit the memory of all later tests in this process.
    monkeypatch.setattr(trial_worker, "MainMemoryLimit", lambda *_arguments: Mock(read_peak=dict))
    write_request(tmp_path, TrialRequest())
    trial_worker._run_trial(trial.prepared.spec, trial.reporter)
    (result,) = take_results(tmp_path, RankMeasurements)
    assert result.joules_per_image == 8.0 * 2.0 / 4


def test_energy_is_summed_over_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules = {"GPU-a": 1500, "GPU-b": 500}
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda handle: millijoules[handle])
    spec = make_worker_spec(Job.from_fields(devices=tuple(millijoules), strategy="ddp"))
    assert trial_worker._read_energy_j(spec) == 2.0
    assert trial_worker._read_energy_j(msgspec.structs.replace(spec, rank=1)) is None
    monkeypatch.setattr(pynvml, "nvmlInit", Mock(side_effect=pynvml.NVMLError(1)))
    assert trial_worker._read_energy_j(spec) is None


def test_rehearsal_separates_steps_that_decode(trial: _Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, float]] = []
    durations = iter([[9.0, 0.5, 0.2, 0.2], [0.5, 0.1, 0.1, 0.4], [0.8, 0.1, 0.1, 0.1]])

    def train(_trial: _Trial, batches: Iterable[Any], seconds: float) -> list[float]:
        calls.append((len(list(batches)), seconds))
        clock.now += 1.5
        return next(durations)

    monkeypatch.setattr(trial_worker, "_train", train)
    monkeypatch.setattr(trial_worker, "_validate_twice", lambda *_arguments: (3.0, 0.5))
    monkeypatch.setattr(trial_worker, "_time_saving", lambda _trial: 0.7)
    found = _rehearse(trial)
    assert calls == [(12, 2.0), (4, 2.0), (4, 0.5)]
    assert (found.cold_step_s, found.warm_step_s, found.start_s) == pytest.approx((0.3, 0.1, 0.65 - 0.1))
    assert (found.validation_s, found.validated, found.save_s) == (3.0, 0.5, 0.7)


@pytest.mark.parametrize(("batch_s", "expected"), [((0.6, 0.5), (1.5, 1.0)), ((1.1, 0.1), (2.2 * 3, 1 / 3))])
def test_validation_is_repeated_if_it_was_complete(
    trial: _Trial,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    batch_s: tuple[float, float],
    expected: tuple[float, float],
) -> None:
    """Validate three batches twice, which take `batch_s` each in the two validations, with a limit of two seconds."""
    evaluate, durations = trial.strategy.evaluate, iter(batch_s)

    def evaluate_slowly(batches: Iterable[Any], *arguments: Any) -> bool:
        seconds = next(durations)

        def load_slowly() -> Iterator[Any]:
            for batch in batches:
                clock.now += seconds
                yield batch

        return evaluate(load_slowly(), *arguments)

    monkeypatch.setattr(trial.strategy, "evaluate", evaluate_slowly)
    val = trial.prepared.dataloaders.create_val_loader()
    try:
        assert _validate_twice(trial, val) == pytest.approx(expected)
    finally:
        val.close()


@pytest.mark.parametrize(
    ("durations", "on_cpu", "mean_s"),
    [
        ([9.0, 1.0, 2.0, 3.0], True, 2.0),
        ([9.0, 9.0, 9.0, 0.2, 0.2, 0.5], False, 0.3),
        ([0.1, 0.2, 0.2, 0.2, 0.2, 0.7], True, 0.3),  # at most five
        ([0.1, 7.0], True, 7.0),
    ],
)
def test_batch_finder_times_steps_after_warm_up(
    trial: _Trial,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    durations: list[float],
    *,
    on_cpu: bool,
    mean_s: float,
) -> None:
    batches, unused = simulate_steps(trial, clock, monkeypatch, durations)
    monkeypatch.setattr(batch_worker, "clock", lambda _device: clock.now)
    found = batch_worker._measure_step_s(trial.prepared, trial.reporter, batches, on_cpu=on_cpu)
    assert (found, list(unused)) == (pytest.approx(mean_s), [])


def test_smaller_batch_is_divided_among_the_ranks(trial: _Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()

    def step(batch: Any, *_: object) -> None:
        clock.now += 0.5
        sizes.add((len(batch.inputs), len(batch.targets), batch.global_size))

    full = next(trial_worker.iterate_repeated_batches(trial.prepared, trial.reporter))
    monkeypatch.setattr(trial_worker, "iterate_repeated_batches", lambda *_: iter([full]))
    monkeypatch.setattr(trial.strategy, "step", step)
    monkeypatch.setattr(trial.strategy, "data_world", 2)
    assert trial_worker._time_batch_size(trial, 6) == 0.5
    assert sizes == {(3, 3, 6)}


def test_large_batch_repeats_few_images(trial: _Trial) -> None:
    spec = msgspec.structs.replace(trial.prepared.spec, job=trial.prepared.spec.job.with_fields(batch_size=20))
    prepared = _Trial(spec, trial.reporter, trial.request).prepared
    batch = next(trial_worker.iterate_repeated_batches(prepared, trial.reporter))
    assert (len(batch.inputs), len(batch.targets), batch.global_size) == (20, 20, 20)
    assert batch.inputs[16:].equal(batch.inputs[:4])
    reserved = reserve_prefetched(prepared)
    assert reserved is not None
    assert len(reserved) == (PREFETCH + 1) * (20 + 12)
