"""Rounds of the advisor, with scripted trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.advisor.advice import advisor as module
from engine.advisor.advice import trials
from engine.advisor.advice.advisor import advise
from engine.advisor.advice.trial_files import LinkSpeed, RankMeasurements, Rehearsal, TrialRequest
from engine.contract.advice import Advice, AdviceProgress, AdviceRequest
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.processes.requests import RequestError
from tests.engine.advisor.advice.test_estimates import FOOTPRINT, GIB
from tests.support.clock import Clock

JOB = Job.from_fields(
    dataset="/data", model="resnet18", strategy="ddp", devices=("GPU-0", "GPU-1"), batch_size=32, optimizer="adamw"
)
REHEARSAL = Rehearsal(cold_step_s=0.3, warm_step_s=0.2, start_s=0.1, validation_s=2.0, validated=1.0, save_s=0.5)
OUT_OF_MEMORY = Failed(cause="Out of memory.", kind="out_of_memory")


class Machine:
    """Simulated machine, whose trials take one second. A training step takes 0.4 s, divided by the number of devices.

    Attributes:
        trials: Strategy, number of devices and minimum number of steps of each trial.
        requests: Request of each trial.
        memory_bytes: Peak use of memory in each trial.
        delays_s: Additional duration of a step by strategy. It is 0.01 s for other strategies, except DDP.
        bytes_per_second: Speed of the link between two devices.
        result: Function that may replace the result of a trial. It is called with the trial's number and job.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.trials: list[tuple[str, int, int]] = []
        self.requests: list[TrialRequest] = []
        self.memory_bytes = 5 * GIB
        self.delays_s = {"ddp": 0.0}
        self.bytes_per_second = 1e9
        self.result: Callable[[int, Job], Failed | None] = lambda number, job: None

    def run_trial(
        self, job: Job, request: TrialRequest, folder: Path, timeout_s: float
    ) -> list[RankMeasurements] | Failed:
        devices = len(job.parallel.devices)
        self.requests.append(request)
        self.trials.append((job.resolved_strategy, devices, request.min_steps))
        self.clock.now += 1.0
        if failed := self.result(len(self.trials), job):
            return failed
        step_s = 0.4 / devices + self.delays_s.get(job.resolved_strategy, 0.01)
        first = RankMeasurements(
            step_s=(step_s,) * request.min_steps,
            memory={"GPU 0": (self.memory_bytes, 8 * GIB)},
            worked_s=0.75,
            link=LinkSpeed(self.bytes_per_second, 0.0, devices) if request.times_link else None,
            rehearsal=REHEARSAL if request.rehearse_s else None,
        )
        others = [msgspec.structs.replace(first, memory={"GPU 1": (4 * GIB, 6 * GIB)})] * (devices - 1)
        return [first, *others]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    clock = Clock(100.0)
    machine = Machine(clock)
    for each in (module, trials):
        monkeypatch.setattr(each, "time", clock)
    monkeypatch.setattr(trials, "_run_trial", machine.run_trial)
    monkeypatch.setattr(module, "import_for", lambda job: setattr(clock, "now", clock.now + 3.0))
    monkeypatch.setattr(module, "measure_footprint", lambda job, folder, timeout_s: FOOTPRINT)
    return machine


def ask(job: Job = JOB, **changes: object) -> Advice:
    return advise(AdviceRequest(**({"job": job, "seconds": 120.0} | changes)), lambda progress: None)  # type: ignore[arg-type]


def test_advisor_ranks_by_measured_speed(machine: Machine) -> None:
    progress: list[AdviceProgress] = []
    found = advise(AdviceRequest(job=JOB, seconds=120.0), progress.append)
    assert (found.ended_by, found.fits, found.is_cached) == ("settled", True, False)
    assert (found.took_s, found.memory_by) == (3 + len(machine.trials), "one_device")
    first = found.table[0]
    assert (first.changes, first.images_per_second) == ({}, pytest.approx(32 / 0.2))
    assert first.efficiency == pytest.approx((0.41 / 0.2) / 2)
    speeds = [row.images_per_second or 0.0 for row in found.table]
    assert speeds == sorted(speeds, reverse=True)
    assert found.considered == len(found.table) + sum(len(left.names) for left in found.left_out)
    assert machine.trials[0][:2] == ("single", 1)
    assert machine.trials[-1] == ("ddp", 2, 1), "the rehearsal"
    assert {(each.min_steps, each.seconds) for each in machine.requests[:-1]} == {(5, 0.4), (10, 0.8)}
    assert first.time is not None
    assert (first.time.steps, first.time.validation_s) == (1000 // 32, 2.5)
    assert first.time.step_s == pytest.approx(0.2 + 0.1 / 31)
    assert first.time.start_s == pytest.approx(0.2 + 3 + 0.25 + 31 * 0.1)
    assert (first.memory_bytes, first.limit_bytes) == (4 * GIB, 6 * GIB)
    assert [number for number, request in enumerate(machine.requests) if request.times_smaller] == [0]
    assert [machine.trials[number][1] for number, each in enumerate(machine.requests) if each.times_link] == [2]
    assert machine.requests[0].give_up_s == (120 - 3) / 4
    assert machine.requests[1].give_up_s == pytest.approx(1.3 * 0.41)
    assert machine.requests[-1].rehearse_s == 5
    seconds = [each.seconds_left for each in progress]
    assert seconds == sorted(seconds, reverse=True)
    assert [row.state for row in progress[2].table][:1] == ["trying"]
    left = [each.left for each in progress if each.what.startswith("Tried")]
    assert (left, left[-1]) == (sorted(set(left), reverse=True), 0)


def test_answer_is_cached_unless_it_was_stopped(machine: Machine) -> None:
    def interrupt(number: int, job: Job) -> None:
        if number == 3:
            raise KeyboardInterrupt

    machine.result = interrupt
    stopped = ask()
    assert (stopped.ended_by, len(stopped.table), len(machine.trials)) == ("stopped", 2, 3)
    assert ask().ended_by == "settled"
    trials = len(machine.trials)
    assert trials > 6
    cached = ask(JOB.with_fields(epochs=50))
    assert (cached.is_cached, len(machine.trials)) == (True, trials)
    assert cached.table[0].time is not None
    assert cached.table[0].time.epochs == 50
    assert cached.table[0].time.total_s == pytest.approx(6.55 + 50 * (31 * 0.2 + 0.1 + 2.5))
    assert not ask(remeasure=True).is_cached
    assert len(machine.trials) > trials
    others = ({"batch_size": 64}, {"options": {"width": 1}}, {"model_file_sha256": "0" * 64})
    assert [ask(JOB.with_fields(**other)).is_cached for other in others] == [False] * 3
    frozen = JOB.with_fields(freeze_epochs=5, epochs=5)
    assert [ask(frozen.with_fields(epochs=epochs)).is_cached for epochs in (5, 6, 7)] == [False, False, True]


def test_stop_during_a_second_trial_leaves_its_setup_measured(machine: Machine) -> None:
    def interrupt(_number: int, _job: Job) -> None:
        if machine.requests[-1].min_steps == 10:
            raise KeyboardInterrupt

    machine.result = interrupt
    assert {row.state for row in ask().table} == {"measured", "slower"}


def test_variants_of_the_fastest_setups_are_tried(machine: Machine) -> None:
    machine.delays_s |= {"single": -0.05, "pipeline": 0.04}
    machine.bytes_per_second = 1e15
    machine.result = lambda *_: OUT_OF_MEMORY if machine.trials[-1] == ("zero1", 2, 10) else None
    found = ask()
    varied = {(row.strategy, *{"bucket_mib", "microbatches"}.intersection(row.changes)) for row in found.table}
    assert {("ddp", "bucket_mib"), ("pipeline",)} < varied
    assert ("pipeline", "microbatches") not in varied, "it takes 1.2 times as long"
    assert module.VARIES_SLOWER in {left.why for left in found.left_out}
    (late,) = (row for row in found.table if row.strategy == "zero1")
    assert (late.state, late.changes) == ("too_large", {"strategy": "zero1"}), (
        "it is not replaced after the first round"
    )


@pytest.mark.parametrize(("delay_s", "trials"), [(0.01, 1), (0.4, 2)])
def test_implausibly_slow_trial_on_one_device_is_repeated(machine: Machine, delay_s: float, trials: int) -> None:
    machine.delays_s["single"] = delay_s
    assert ask().ended_by == "settled"
    assert [strategy for strategy, *_ in machine.trials].count("single") == trials


@pytest.mark.parametrize(("precision", "is_tried"), [("fp32", False), ("bf16", True)])
def test_setups_that_cannot_be_the_fastest_are_left_out(machine: Machine, precision: str, is_tried: bool) -> None:
    found = ask(JOB.with_fields(precision=precision), seconds=15.0)
    assert (module.SLOWER_AT_BEST in {left.why for left in found.left_out}) != is_tried


def test_first_trial_calibrates_the_estimates(machine: Machine) -> None:
    estimates = {row.name: row.estimated_bytes for row in ask().table}
    machine.memory_bytes = 6 * GIB
    higher = {row.name: row.estimated_bytes for row in ask(remeasure=True).table}
    of_several = [name for name, job in estimates.items() if name in higher and "2" in name]
    assert of_several
    assert [name for name in of_several if not higher[name] > estimates[name]] == []  # type: ignore[operator]
    machine.memory_bytes = 30 * GIB
    tight = ask(remeasure=True)
    assert {left.kind for left in tight.left_out} >= {"memory"}
    assert len(tight.table) < len(higher)


def test_setup_without_memory_is_replaced(machine: Machine) -> None:
    machine.result = lambda number, job: None if job.training.accumulation > 1 else OUT_OF_MEMORY
    found = ask(JOB.with_fields(strategy="single", devices=("GPU-0",)))
    assert found.fits
    assert found.table[0].changes == {"accumulation": 4}, "with 2, it would need nearly as much"
    assert found.considered == len(found.table) + sum(len(left.names) for left in found.left_out)
    assert {row.state for row in found.table if "accumulation" not in row.changes} == {"too_large"}
    assert len({row.name for row in found.table}) == len(found.table)


def test_setups_are_not_tried_after_the_time_is_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_for", lambda job: setattr(machine.clock, "now", machine.clock.now + 30.0))
    found = ask(seconds=20.0)
    assert (machine.trials, found.table, found.ended_by) == ([], (), "time")
    assert [left.why for left in found.left_out if left.kind == "time"] == ["The time was up."]
    assert found.considered == sum(len(left.names) for left in found.left_out)
    assert "time was up" in found.sentence
    assert not ask(seconds=20.0).is_cached


def test_last_trial_ends_before_the_rehearsal(machine: Machine) -> None:
    machine.delays_s["single"], machine.bytes_per_second = -0.05, 1e15
    assert ask(seconds=10.1).ended_by == "time"
    assert [ask(seconds=seconds).is_cached for seconds in (10.0, 10.1)] == [True, True]
    assert [request.rehearse_s for request in machine.requests] == [0, 0, 0, 0, 0.5]
    assert not ask(seconds=10.2).is_cached


def test_footprint_without_memory_leaves_estimates_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_footprint", lambda *_arguments: OUT_OF_MEMORY)
    found = ask(seconds=15.0)
    assert (found.fits, found.memory_by, found.table[0].estimated_bytes) == (True, "none", None)


def test_failing_job_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_footprint", lambda *_arguments: Failed(cause="No file."))
    with pytest.raises(RequestError) as caught:
        ask()
    assert "No file." in msgspec.json.encode(caught.value.problems).decode()
    assert machine.trials == []
