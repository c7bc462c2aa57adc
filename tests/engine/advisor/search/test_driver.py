"""Search driver that starts real runs, and that is killed and restarted."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import psutil
import pytest

from engine.advisor.search import __main__ as search_program
from engine.advisor.search import driver as driver_module
from engine.advisor.search import trial_handle
from engine.advisor.search.driver import Driver
from engine.advisor.search.study import KnownTrial, Study
from engine.checks.job_checks import problems
from engine.checks.search_checks import MIN_FREE_BYTES
from engine.contract.catalogue import load_catalogue
from engine.contract.events import AnyEvent, Outcome, RunFinished, RunStarted, Validation
from engine.contract.protocol import Command, Pause, Stop
from engine.contract.search import ENDED_TRIALS, Budget, Search, SearchState, Trial
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.launch import Preloader
from engine.runs.notes import read_notes
from engine.runs.searches import (
    SearchFolder,
    best_job,
    create_search,
    describe_confirmed_result,
    describe_pending_confirmations,
    job_with,
    save_trial,
    start_driver,
    stop_driver,
    trials_of,
)
from engine.supervisor.environment import usable_cores
from engine.system import paths
from tests.conftest import MARK
from tests.support.clock import Clock
from tests.support.made_searches import make_search_config, make_state
from tests.support.searches import SPACE, make_small_job, make_small_search
from tests.support.waiting import wait_until

TRAINED = sum(row.epoch for row in make_state(3).trials)
RANGES = {name: SPACE[name] for name in ("learning_rate", "optimizer")}


def start_search(search: Search) -> SearchFolder:
    folder = create_search(search)
    start_driver(folder)
    return folder


def wait_for_final_state(folder: SearchFolder) -> SearchState:
    """Wait until the driver of a search has exited, and return the state of the search."""
    wait_until(lambda: folder.status() != "running", "the end of the search")
    return folder.state()


def kill(folder: SearchFolder) -> None:
    driver = wait_until(folder.driver, "the driver")
    os.kill(driver.pid, signal.SIGKILL)
    wait_until(lambda: folder.driver() is None, "the driver to exit")


def kill_everything() -> None:
    """Kill all other processes of this test at once, as a power failure would."""
    mine = [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs_to_test(process)]
    for process in mine:
        process.kill()
    psutil.wait_procs(mine, timeout=120)


def _belongs_to_test(process: psutil.Process) -> bool:
    try:
        return process.environ().get(MARK) == os.environ[MARK]
    except psutil.Error:
        return False


def read_times(run: RunFolder) -> tuple[float, float]:
    """Return the start of the run's first execution and the end of its last one."""
    events = list(run.events())
    started_at = next(event.time for event in events if isinstance(event, RunStarted))
    return started_at, next(event.time for event in reversed(events) if isinstance(event, RunFinished))


def test_driver_continues_after_kill_and_is_reproducible() -> None:
    search = make_small_search(make_small_job(epochs=2), space=RANGES, pruner="none", seed=3)
    folder = start_search(search)
    wait_until(lambda: len(trials_of("small")) >= 2 and any(row.epoch for row in folder.state().trials), "two trials")
    kill(folder)
    assert folder.status() == "interrupted"
    start_driver(folder)
    start_driver(folder)  # a second driver exits
    state = wait_for_final_state(folder)
    assert state.ended == "completed"
    assert [row.number for row in state.trials] == [0, 1, 2, 3]
    assert {row.state for row in state.trials} == {"completed"}
    assert len(list_runs()) == 4, "no trial was started twice"
    best = state.row(state.best)
    assert best is not None
    assert best.values[0] == max(row.values[0] or 0 for row in state.trials)
    assert (state.front, state.total) == ((best.number,), 4)
    # Every trial is an ordinary run with a name and a tag; only the best keeps its checkpoints.
    trials = trials_of("small")
    for run, trial in trials:
        job = run.job()
        assert job is not None
        assert (job.optimizer.learning_rate, job.optimizer.name) == (
            trial.params["learning_rate"],
            trial.params["optimizer"],
        )
        assert (job.name, read_notes(run.path).tags) == (f"small {trial.number}", ("search small",))
        assert bool(list(run.checkpoints.glob("*.pt"))) == (trial.number == best.number)
    (first, second) = (read_times(run) for run, _trial in trials[:2])
    assert max(first[0], second[0]) < min(first[1], second[1]), "two trials run at the same time"
    # Settings are reproducible from the saved trials.
    rows = {row.number: row for row in state.trials}
    for _run, trial in trials:
        known = [KnownTrial(each, rows[each.number]) for _, each in trials if each.number in trial.known]
        known += [
            KnownTrial(each, msgspec.structs.replace(rows[each.number], state="running"))
            for _, each in trials
            if each.number in trial.in_hand
        ]
        repeated = Study(search, load_catalogue()).ask(sorted(known, key=lambda one: one.trial.number), trial.number)
        assert repeated is not None
        assert repeated.params == trial.params
    full = best_job(msgspec.structs.replace(search, best_epochs=7), best)
    assert (full.training.epochs, full.optimizer.learning_rate, full.name) == (
        7,
        best.params["learning_rate"],
        "small best",
    )


@pytest.mark.long
def test_driver_stop_pauses_trials_and_restart_resumes() -> None:
    folder = start_search(make_small_search(make_small_job(epochs=30), space=RANGES, pruner="none", trials=2))
    wait_until(lambda: any(row.epoch >= 2 for row in folder.state().trials), "epoch 2 of a trial")
    assert stop_driver(folder)
    state = wait_for_final_state(folder)
    assert state.ended == "stopped"
    assert {row.state for row in state.trials} <= {"paused"}
    before = max(row.epoch for row in state.trials)
    assert 2 <= before < 30
    start_driver(folder)
    wait_until(lambda: any(row.epoch > before for row in folder.state().trials), "a later epoch")
    assert len(trials_of("small")) == len(state.trials), "in the same folders"
    stop_driver(folder)
    assert wait_for_final_state(folder).ended == "stopped"


@pytest.mark.long
def test_driver_recovers_all_trials_after_power_failure() -> None:
    folder = start_search(make_small_search(make_small_job(epochs=6), space=RANGES, trials=8))
    wait_until(lambda: sum(row.state in ENDED_TRIALS for row in folder.state().trials) >= 3, "the end of three trials")
    kill_everything()
    before = {row.number: row for row in folder.state().trials if row.state in ENDED_TRIALS}
    started_at = {run.run_id for run, _trial in trials_of("small")}
    assert len(before) >= 3
    folder.state_file.unlink()  # the state can be restored from the runs
    start_driver(folder)
    state = wait_for_final_state(folder)
    assert (state.ended, len(state.trials)) == ("completed", 8)
    assert {row.state for row in state.trials} <= {"completed", "pruned"}
    after = {row.number: row for row in state.trials}
    assert {number: after[number] for number in before} == before
    assert started_at <= {row.run_id for row in state.trials}, "active trials continued in their folders"
    assert len(list_runs()) == 8


@pytest.mark.long
def test_driver_killed_during_repeats_starts_none_twice() -> None:
    search = make_small_search(make_small_job(epochs=2, seed=5), space=RANGES, pruner="none", trials=2, confirm=3)
    folder = start_search(search)
    wait_until(lambda: sum(row.repeat_of is not None for row in folder.state().trials) >= 3, "three repetitions")
    kill(folder)
    started_at = {run.run_id for run, _trial in trials_of("small")}
    start_driver(folder)
    state = wait_for_final_state(folder)
    assert (state.ended, state.total, len(list_runs())) == ("completed", 8, 8)
    assert started_at <= {row.run_id for row in state.trials}
    repeats = [row for row in state.trials if row.repeat_of is not None]
    assert sorted((row.repeat_of, row.params["seed"]) for row in repeats) == [(n, s) for n in (0, 1) for s in (6, 7, 8)]
    for row in repeats:
        job = RunFolder(paths.runs_folder() / row.run_id).job()
        assert job is not None
        assert (job.training.seed, job.optimizer.learning_rate) == (row.params["seed"], row.params["learning_rate"])
        assert job.name == f"small {row.title}"
    means = {row.number: row.mean for row in state.originals}
    assert all(len(row.confirmed) == 3 for row in state.originals)
    assert state.best == max(means, key=lambda number: (means[number] or 0.0, -number))
    with_checkpoints = {row.number for row in state.trials if list(checkpoints(row.run_id))}
    assert with_checkpoints == {state.best}


@pytest.mark.long
def test_driver_ends_if_all_trials_fail() -> None:
    search = make_small_search(make_small_job(restarts=0), space=RANGES, pruner="none", devices=["cpu"])
    broken = msgspec.structs.replace(search, job=search.job.with_fields(dataset="/nowhere"))
    state = wait_for_final_state(start_search(broken))
    assert state.ended == "failed"
    assert "nowhere" in state.cause
    assert [row.state for row in state.trials] == ["failed"] * len(state.trials)


@pytest.mark.parametrize(
    ("budget", "may_start"),
    [
        (Budget(trials=3), False),
        (Budget(trials=4), True),
        (Budget(hours=0.01), False),
        (Budget(hours=9.0), True),
        (Budget(epochs=TRAINED), False),
        (Budget(epochs=TRAINED + 1), True),
    ],
)
def test_driver_ends_with_budget(budget: Budget, may_start: bool) -> None:
    folder = create_search(make_search_config(budget=budget))
    folder.save_state(make_state(3))
    driver = Driver(folder, make_search_config(budget=budget), Preloader())
    trial = SimpleNamespace(repeat_of=None)
    driver._handles = {row.number: SimpleNamespace(row=row, trial=trial) for row in make_state(3).trials}  # type: ignore[assignment]
    assert driver._may_start() is may_start


LUCKY, SOLID = 1, 2
FIRST_VALUES = {0: 0.5, LUCKY: 0.9, SOLID: 0.8}


class SimulatedSearch:
    """Search with a driver whose trials are never started. Tests write their logs instead.

    `values` maps the number of each original trial to its metric, to None if it has failed, or to its state.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, values: Mapping[int, float | str | None] = FIRST_VALUES, **fields: Any
    ) -> None:
        self.search = make_small_search(
            **(
                {"space": RANGES, "pruner": "none", "trials": 3, "devices": ["cpu"] * 3, "job": make_small_job()}
                | fields
            )
        )
        self.folder = create_search(self.search)
        self.started: list[str] = []
        study = Study(self.search, load_catalogue())
        for number, value in values.items():
            trial = study.ask([], number)
            assert trial is not None
            self.add(trial, value)
        monkeypatch.setattr(Driver, "_start", lambda _driver, run: self.started.append(run.run_id))
        self.restart_driver()

    def add(self, trial: Trial, value: float | str | None) -> None:
        job, _problems = job_with(self.search.job, trial.params)
        assert job is not None
        run = create_run(job, partial(save_trial, trial=trial))
        if not isinstance(value, str):
            self.finish(run, value)
        elif value == "interrupted":
            os.utime(run.job_file, (0, 0))

    def restart_driver(self) -> None:
        """Create a new driver, which reads the search from its folder, as after the previous driver has died."""
        self.driver = Driver(self.folder, self.search, Preloader())

    def step(self) -> SearchState:
        self.driver._poll_once()
        self.driver._save(self.folder.state().ended)
        return self.folder.state()

    def list_unfinished_repeats(self) -> list[tuple[RunFolder, Trial]]:
        """Return the runs and trials of the repetitions that haven't ended."""
        return [(run, trial) for run, trial in trials_of("small") if not run.events_file.exists()]

    def list_started_numbers(self) -> list[int]:
        """Return the numbers of the started trials, in order."""
        numbers = {run.run_id: trial.number for run, trial in trials_of("small")}
        return [numbers[run_id] for run_id in self.started]

    @staticmethod
    def finish(run: RunFolder, value: float | None, outcome: Outcome | None = None, cause: str = "") -> None:
        """Write the log of a run that has ended with the metric `value`.

        By default, the outcome is "completed", or "failed" if `value` is None. `cause` explains a failure.
        """
        outcome = outcome or ("completed" if value is not None else "failed")
        events: list[AnyEvent] = [RunFinished(outcome=outcome, cause=cause)]
        if value is not None:
            events[:0] = make_validations(value, 3)
        run.checkpoints.mkdir(exist_ok=True)
        (run.checkpoints / "best.pt").touch()
        run.events_file.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def record_commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Command]]:
    """Replace the connection to the trials by a list of (run ID, command), and return the list."""
    sent: list[tuple[str, Command]] = []
    monkeypatch.setattr(trial_handle, "send", lambda run, command: sent.append((run.run_id, command)))
    return sent


def make_validations(value: float, epochs: int) -> list[AnyEvent]:
    """Return validations with the same value of accuracy and loss in each epoch."""
    measures = {"top1": value, "loss": value}
    return [Validation(epoch=n, step=n, measures=measures, images=1, seconds=0.1) for n in range(1, epochs + 1)]


def test_repeats_replace_lucky_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed = SimulatedSearch(monkeypatch, confirm=2)
    state = confirmed.step()
    assert (state.best, state.candidates, state.baseline) == (LUCKY, (LUCKY, SOLID, 0), 0)
    assert [
        (trial.number, trial.repeat_of, trial.params["seed"]) for _run, trial in confirmed.list_unfinished_repeats()
    ] == [
        *((3, LUCKY, 1), (4, SOLID, 1), (5, 0, 1)),
    ]
    jobs = [run.job() for run, _trial in confirmed.list_unfinished_repeats()]
    assert [job and job.name for job in jobs] == ["small 1, seed 1", "small 2, seed 1", "small 0, seed 1"]
    assert describe_pending_confirmations(state) == "Confirming the best 3 settings with other seeds: 0 of 6 trained"
    assert (state.total, state.originals_total, state.originals_ended) == (9, 3, 3)
    reached = {LUCKY: [0.7, 0.6], SOLID: [0.75, 0.75], 0: [0.8, None]}
    while repeats := confirmed.list_unfinished_repeats():
        run, trial = repeats[0]
        assert trial.repeat_of is not None
        confirmed.finish(run, reached[trial.repeat_of][trial.params["seed"] - 1])
        confirmed.restart_driver()  # killed after each repeat
        state = confirmed.step()
        if confirmed.list_unfinished_repeats():
            assert state.best == LUCKY, "the base ranking remains until all have ended"
            assert set(FIRST_VALUES) <= {
                trial.number for run, trial in trials_of("small") if list(run.checkpoints.glob("*.pt"))
            }
    assert (state.ended, state.total, len(state.trials)) == ("completed", 9, 9)
    assert {row.number: row.confirmed for row in state.originals} == {LUCKY: (0.7, 0.6), SOLID: (0.75, 0.75), 0: (0.8,)}
    assert (state.best, state.front) == (0, (0,))
    assert {trial.number for run, trial in trials_of("small") if list(run.checkpoints.glob("*.pt"))} == {0}
    assert (describe_pending_confirmations(state), state.seconds_left) == ("", None)
    assert describe_confirmed_result(state, str) == "0.8 over 1 other seed, with the job's own settings"


@pytest.mark.parametrize(
    ("trials", "space", "total"),
    [(9, RANGES, 9 + 2 * 4), (2, RANGES, 2 + 2 * 2), (9, SPACE, 9 + 2 * 3)],
    ids=["many", "few", "own-settings-outside"],
)
def test_total_includes_maximum_repeats(trials: int, space: dict[str, Any], total: int) -> None:
    search = make_small_search(space=space, trials=trials, confirm=2)
    folder = create_search(search)
    Driver(folder, search, Preloader())._save()
    assert (folder.state().total, folder.state().originals_total) == (total, trials)


def test_base_ranking_remains_if_all_repeats_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed = SimulatedSearch(monkeypatch, confirm=1)
    confirmed.step()
    for run, _trial in confirmed.list_unfinished_repeats():
        confirmed.finish(run, None)
    state = confirmed.step()
    assert (state.ended, state.best, state.count("failed")) == ("completed", LUCKY, 3)
    assert describe_confirmed_result(state, str) == ""


def test_repeats_are_outside_budget_and_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed = SimulatedSearch(monkeypatch, confirm=1)
    confirmed.step()
    for run, trial in confirmed.list_unfinished_repeats():
        confirmed.finish(run, 0.7 + 0.1 * (trial.repeat_of or 0))
    assert confirmed.step().best == SOLID
    importance = confirmed.folder.state().importance
    confirmed.search = msgspec.structs.replace(confirmed.search, budget=Budget(trials=4))
    confirmed.restart_driver()
    state = confirmed.step()
    ((_run, trial),) = confirmed.list_unfinished_repeats()
    assert (trial.number, trial.repeat_of) == (6, None)
    assert set(trial.known) == set(FIRST_VALUES)
    assert (state.best, state.candidates, state.importance) == (LUCKY, (), importance)
    confirmed.finish(_run, 0.85)
    state = confirmed.step()
    ((_run, trial),) = confirmed.list_unfinished_repeats()
    assert (trial.repeat_of, state.candidates) == (6, (LUCKY, 6, SOLID, 0))
    assert describe_pending_confirmations(state) == "Confirming the best 4 settings with other seeds: 3 of 4 trained"
    confirmed.finish(_run, 0.85)
    assert confirmed.step().best == SOLID


@pytest.mark.parametrize(
    ("job", "space", "threads"),
    [
        ({}, {}, {max(1, usable_cores() // 3)}),
        ({"cpu_threads": 3}, {}, {3}),
        ({}, {"cpu_threads": [4, 5]}, {4, 5}),
    ],
)
def test_trials_are_runs_that_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, job: dict[str, int], space: dict[str, Any], threads: set[int]
) -> None:
    written = SimulatedSearch(monkeypatch, {}, job=make_small_job(**job), space=RANGES | space, confirm=0)
    written.step()
    jobs = [each for run, _trial in trials_of("small") if (each := run.job())]
    assert [each.name for each in jobs] == ["small 0", "small 1", "small 2"]
    assert {each.parallel.devices for each in jobs} == {("cpu",)}
    assert {each.precision.cpu_threads for each in jobs} <= threads


def test_number_of_a_deleted_trial_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_small_job(optimizer="adamw", nesterov=True)  # which is worth a warning
    assert problems(job, load_catalogue())
    space = {"learning_rate": RANGES["learning_rate"]}
    written = SimulatedSearch(monkeypatch, {0: 0.5, 2: 0.6}, job=job, space=space, devices=["cpu"], confirm=0)
    assert [row.number for row in written.step().trials] == [0, 2, 3]


def test_unexpected_error_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preloader, "start", Mock(side_effect=ValueError("odd")))
    folder = create_search(make_search_config())
    with pytest.raises(ValueError, match="odd"):
        Driver(folder, make_search_config(), Preloader()).run()
    assert (folder.state().ended, "ValueError: odd" in folder.state().cause) == ("failed", True)


def test_interrupted_trials_are_resumed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {0: 0.5, 1: "interrupted", 2: "interrupted", 3: "interrupted"}
    written = SimulatedSearch(monkeypatch, values, devices=["cpu"], trials=4, confirm=0)
    written.finish(trials_of("small")[1][0], 0.9)  # has ended in the meantime
    state = written.step()
    assert written.list_started_numbers() == [2]
    assert [row.state for row in state.trials] == ["completed", "completed", "running", "interrupted"]


def test_paused_trial_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    written = SimulatedSearch(monkeypatch, {0: 0.5, 1: 0.6, 2: "running"}, confirm=0)
    assert written.step().ended == ""
    written.finish(trials_of("small")[2][0], 0.7, "paused")
    state = written.step()
    assert (state.ended, state.best, bool(state.cause)) == ("stopped", 1, True)
    written.restart_driver()
    written.step()
    assert written.list_started_numbers() == [2]


def test_trial_is_resumed_after_its_supervisor_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(10.0)
    monkeypatch.setattr(trial_handle, "time", clock)
    written = SimulatedSearch(monkeypatch, {0: 0.5, 1: "running"}, devices=["cpu"], confirm=0)
    written.step()
    os.utime(trials_of("small")[1][0].job_file, (0, 0))
    clock.now += 2.0
    assert (written.step().ended, written.list_started_numbers()) == ("", [1])


def test_unchanged_state_is_saved_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(driver_module, "time", clock)
    written = SimulatedSearch(monkeypatch, dict.fromkeys(range(3), "running"), confirm=0)
    saved_at = []
    for index, seconds in enumerate((0.0, 0.2, 14.0, 1.0, 0.2, 0.2)):
        clock.now += seconds
        if index in (3, 4):
            written.finish(trials_of("small")[index - 3][0], 0.5)
        written.driver._poll_once()
        saved_at.append(round(written.folder.state().time, 1))
    assert saved_at == [100.0, 100.0, 100.0, 115.2, 115.2, 115.6]


def test_second_end_does_not_wait_for_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = record_commands(monkeypatch)
    written = SimulatedSearch(monkeypatch, {0: 0.5, 1: "running"}, confirm=0)
    ended = []
    for _ in range(2):
        written.driver.end()
        ended.append(written.step().ended)
    assert (ended, written.started, sent) == (["", "stopped"], [], [(trials_of("small")[1][0].run_id, Pause())])


def test_failed_trials_end_a_small_search(monkeypatch: pytest.MonkeyPatch) -> None:
    written = SimulatedSearch(monkeypatch, {0: "running", 1: "running"}, trials=2, confirm=0)
    for (run, _trial), cause in zip(trials_of("small"), ("It is cold.", "It is late."), strict=True):
        written.finish(run, None, cause=cause)
    state = written.step()
    assert (state.ended, state.cause.endswith(": It is late.")) == ("failed", True)


def test_several_goals_have_no_best_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimulatedSearch(monkeypatch, {0: 0.9, 1: 0.8}, goals=["top1", "loss"]).step()
    assert (state.best, state.front) == (None, (0, 1))


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_small_space_is_tried_once(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    space = {"optimizer": ["sgd", "adamw"]}
    written = SimulatedSearch(monkeypatch, {0: 0.5}, space=space, sampler=sampler, trials=9, confirm=0, devices=["cpu"])
    written.step()
    written.finish(trials_of("small")[1][0], 0.6)
    state = written.step()
    assert (state.ended, state.total, state.best) == ("completed", 2, 1)
    assert {row.params["optimizer"] for row in state.trials} == {"sgd", "adamw"}


def test_time_of_repeats_does_not_count_against_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(driver_module, "time", SimpleNamespace(monotonic=clock.monotonic, time=lambda: 0.0))
    written = SimulatedSearch(monkeypatch, trials=None, hours=0.5, confirm=1)
    written.folder.save_state(msgspec.structs.replace(written.folder.state(), worked_s=3000.0, confirming_s=2000.0))
    written.restart_driver()
    written.driver._save()
    assert written.folder.state().seconds_left == 1800 - 1000
    state = written.step()
    assert (state.worked_s, state.confirming_s, written.list_started_numbers()) == (3000.0, 2000.0, [3, 4, 5])
    for run, _trial in written.list_unfinished_repeats():
        written.finish(run, 0.1)
    clock.now += 900
    assert len(written.step().candidates) == 3
    clock.now += 50
    state = written.step()
    assert (state.worked_s, state.confirming_s) == (3950.0, 2050.0)


def test_trial_on_devices_of_a_group_occupies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_small_job(devices=("cpu", "cpu"))
    written = SimulatedSearch(monkeypatch, {0: "running"}, job=job, devices=["cpu"] * 2, devices_per_trial=2)
    written.search = msgspec.structs.replace(written.search, devices=("cpu",), devices_per_trial=1)
    written.restart_driver()
    written.step()
    assert written.started == []


def test_only_unfinished_originals_are_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    written = SimulatedSearch(
        monkeypatch, {0: "running", 1: 0.9, 2: 0.9, 3: 0.9, 4: 0.9, 5: "running", 6: "running"}, trials=7, pruner="median"
    )  # fmt: skip
    params = trials_of("small")[1][1].params
    written.add(Trial(search="small", number=7, params=params | {"seed": 1}, seed=0, repeat_of=1), "running")
    sent = record_commands(monkeypatch)
    epochs = {0: 1, 5: 1, 6: 3, 7: 1}  # of three; the baseline and repeats are never pruned
    for run, trial in written.list_unfinished_repeats():
        value = 0.95 if trial.number == 6 else 0.1
        lines = [msgspec.json.encode(event) + b"\n" for event in make_validations(value, epochs[trial.number])]
        run.events_file.write_bytes(b"".join(lines))
    written.restart_driver()
    written.step()
    pruned = [(run.run_id, trial.number) for run, trial in trials_of("small") if trial.pruned]
    assert [number for _, number in pruned] == [5]
    written.restart_driver()  # which sends the command again
    written.step()
    assert sent == [(pruned[0][0], Stop())] * 2


def checkpoints(run_id: str) -> list[Path]:
    return list(RunFolder(paths.runs_folder() / run_id).checkpoints.glob("*.pt"))


def test_driver_ends_if_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create_search(make_search_config())
    driver = Driver(folder, make_search_config(), Preloader())
    usage = shutil.disk_usage(folder.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=MIN_FREE_BYTES - 1))
    assert driver._poll_once()
    state = folder.state()
    assert (state.ended, list_runs()) == ("failed", [])
    assert state.cause.startswith("No trial can be started: less than 1 GiB is free on the disk of")
    assert "Free up space" in state.cause


def test_signals_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    end, unhandled = Mock(), Mock(side_effect=AssertionError("nothing handles the signal"))
    numbers = (signal.SIGINT, signal.SIGTERM)
    monkeypatch.setattr(Preloader, "start", lambda _preloader: None)
    monkeypatch.setattr(Driver, "end", end)
    monkeypatch.setattr(Driver, "run", lambda _driver: list(map(signal.raise_signal, numbers)))
    handlers = {number: signal.signal(number, unhandled) for number in numbers}
    try:
        assert search_program._drive(create_search(make_search_config())) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert end.call_count == 2


def test_run_that_cannot_be_started_is_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    written = SimulatedSearch(monkeypatch, {}, confirm=0)
    monkeypatch.setattr(Driver, "_start", Mock(side_effect=OSError("no more processes")))
    state = written.step()
    assert (state.ended, state.trials) == ("failed", ())


def test_driver_does_not_wait_for_an_exited_preloader() -> None:
    started: list[object] = []
    preloader: Any = SimpleNamespace(start=lambda: None, alive=False, ready=False, start_run=started.append)
    search = make_search_config()
    driver = Driver(create_search(search), search, preloader)
    driver._start(run := create_run(make_small_job()))
    assert started == [run]


@pytest.mark.parametrize(("limit_s", "attempts", "ended"), [(120.0, 3, "failed"), (0.0, 1, "")])
def test_driver_retries_to_save_the_final_state(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, attempts: int, ended: str
) -> None:
    monkeypatch.setattr(driver_module, "SAVE_S", 0.01)
    monkeypatch.setattr(driver_module, "FINAL_SAVE_S", limit_s)
    folder = create_search(make_search_config())
    saved: list[str] = []

    def save(folder: SearchFolder, state: SearchState) -> None:
        saved.append(state.ended)
        if len(saved) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save_state(folder, state)

    save_state = SearchFolder.save_state
    monkeypatch.setattr(SearchFolder, "save_state", save)
    driver = Driver(folder, make_search_config(), Preloader())
    driver._end_cause = "the disk is full"
    assert driver._poll_once()
    assert saved == ["failed"] * attempts
    assert folder.state().ended == ended


def test_only_checkpoints_of_ended_trials_that_are_not_retained_are_deleted() -> None:
    cleared: list[int] = []

    def handle(number: int, *, ended: bool, is_cleared: bool = False) -> SimpleNamespace:
        row = SimpleNamespace(number=number)
        return SimpleNamespace(
            row=row, ended=ended, is_cleared=is_cleared, delete_checkpoints=lambda: cleared.append(number)
        )

    handles = (
        handle(0, ended=True), handle(1, ended=False), handle(2, ended=True), handle(3, ended=True, is_cleared=True),
    )  # fmt: skip
    driver: Any = SimpleNamespace(
        _handles=dict(enumerate(handles)), _retained_checkpoints={2}, _search=SimpleNamespace(keep_checkpoints=True)
    )
    assert Driver._delete_checkpoints(driver)
    assert cleared == []
    driver._search.keep_checkpoints = False
    assert not Driver._delete_checkpoints(driver), "the supervisor of trial 0 is still running"
    assert cleared == [0]
    handles[0].is_cleared = True
    assert Driver._delete_checkpoints(driver)
    assert cleared == [0]
