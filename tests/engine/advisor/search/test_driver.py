"""Search driver that starts real runs, and that is killed and restarted."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from engine.advisor.search import driver as driver_module
from engine.advisor.search.driver import Driver
from engine.advisor.search.study import KnownTrial, Study
from engine.checks.search_checks import MIN_FREE_BYTES
from engine.contract.catalogue import load_catalogue
from engine.contract.events import AnyEvent, RunFinished, RunStarted, Validation
from engine.contract.search import ENDED_TRIALS, Budget, Search, SearchState, Trial
from engine.runs.folder import RunFolder, create_run, list_runs
from engine.runs.launch import Preloader
from engine.runs.notes import read_notes
from engine.runs.searches import (
    SearchFolder,
    best_job,
    confirmed_words,
    confirming_words,
    create_search,
    job_with,
    save_trial,
    start_driver,
    stop_driver,
    trials_of,
)
from engine.system import paths
from tests.conftest import MARK
from tests.support.made_searches import a_search, a_state
from tests.support.searches import SPACE, small_job, small_search, wait_for

TRAINED = sum(row.epoch for row in a_state(3).trials)
RANGES = {name: SPACE[name] for name in ("learning_rate", "optimizer")}


def started(search: Search) -> SearchFolder:
    folder = create_search(search)
    start_driver(folder)
    return folder


def final_state(folder: SearchFolder) -> SearchState:
    """Wait until the driver of a search has exited, and return the state of the search."""
    wait_for(lambda: folder.status() != "running")
    return folder.state()


def kill(folder: SearchFolder) -> None:
    driver = wait_for(folder.driver)
    os.kill(driver.pid, signal.SIGKILL)
    wait_for(lambda: folder.driver() is None)


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


def times(run: RunFolder) -> tuple[float, float]:
    """Return the start of the run's first execution and the end of its last one."""
    events = list(run.events())
    started_at = next(event.time for event in events if isinstance(event, RunStarted))
    return started_at, next(event.time for event in reversed(events) if isinstance(event, RunFinished))


def test_driver_continues_after_kill_and_is_reproducible() -> None:
    search = small_search(small_job(epochs=2), space=RANGES, pruner="none", seed=3)
    folder = started(search)
    wait_for(lambda: len(trials_of("small")) >= 2 and any(row.epoch for row in folder.state().trials))
    kill(folder)
    assert folder.status() == "interrupted"
    start_driver(folder)
    start_driver(folder)  # a second driver exits
    state = final_state(folder)
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
    (first, second) = (times(run) for run, _trial in trials[:2])
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
    folder = started(small_search(small_job(epochs=30), space=RANGES, pruner="none", trials=2))
    wait_for(lambda: any(row.epoch >= 2 for row in folder.state().trials))
    assert stop_driver(folder)
    state = final_state(folder)
    assert state.ended == "stopped"
    assert {row.state for row in state.trials} <= {"paused"}
    before = max(row.epoch for row in state.trials)
    assert 2 <= before < 30
    start_driver(folder)
    wait_for(lambda: any(row.epoch > before for row in folder.state().trials))
    assert len(trials_of("small")) == len(state.trials), "in the same folders"
    stop_driver(folder)
    assert final_state(folder).ended == "stopped"


@pytest.mark.long
def test_driver_recovers_all_trials_after_power_failure() -> None:
    folder = started(small_search(small_job(epochs=6), space=RANGES, trials=8))
    wait_for(lambda: sum(row.state in ENDED_TRIALS for row in folder.state().trials) >= 3)
    kill_everything()
    before = {row.number: row for row in folder.state().trials if row.state in ENDED_TRIALS}
    started_at = {run.run_id for run, _trial in trials_of("small")}
    assert len(before) >= 3
    folder.state_file.unlink()  # the state can be restored from the runs
    start_driver(folder)
    state = final_state(folder)
    assert (state.ended, len(state.trials)) == ("completed", 8)
    assert {row.state for row in state.trials} <= {"completed", "pruned"}
    after = {row.number: row for row in state.trials}
    assert {number: after[number] for number in before} == before
    assert started_at <= {row.run_id for row in state.trials}, "active trials continued in their folders"
    assert len(list_runs()) == 8


@pytest.mark.long
def test_driver_killed_during_repeats_starts_none_twice() -> None:
    search = small_search(small_job(epochs=2, seed=5), space=RANGES, pruner="none", trials=2, confirm=3)
    folder = started(search)
    wait_for(lambda: sum(row.repeat_of is not None for row in folder.state().trials) >= 3)
    kill(folder)
    started_at = {run.run_id for run, _trial in trials_of("small")}
    start_driver(folder)
    state = final_state(folder)
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
    search = small_search(small_job(restarts=0), space=RANGES, pruner="none", devices=["cpu"])
    broken = msgspec.structs.replace(search, job=search.job.with_fields(dataset="/nowhere"))
    state = final_state(started(broken))
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
    folder = create_search(a_search(budget=budget))
    folder.save_state(a_state(3))
    driver = Driver(folder, a_search(budget=budget), Preloader())
    trial = SimpleNamespace(repeat_of=None)
    driver._handles = {row.number: SimpleNamespace(row=row, trial=trial) for row in a_state(3).trials}  # type: ignore[assignment]
    assert driver._may_start() is may_start


LUCKY, SOLID = 1, 2
FIRST_VALUES = {0: 0.5, LUCKY: 0.9, SOLID: 0.8}


class ConfirmedSearch:
    """Search whose first trials have all ended, so that it repeats the best ones with other seeds.

    Runs of the repetitions are created but never started.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
        self.search = small_search(space=RANGES, pruner="none", trials=3, devices=["cpu"] * 3, **values)
        self.folder = create_search(self.search)
        study = Study(self.search, load_catalogue())
        for number, value in FIRST_VALUES.items():
            trial = study.ask([], number)
            assert trial is not None
            job, _problems = job_with(self.search.job, trial.params)
            assert job is not None
            run = create_run(job, partial(save_trial, trial=trial))
            self.finish(run, value)
        monkeypatch.setattr(Driver, "_start", lambda _driver, _run: None)
        self.start_trials()

    def start_trials(self) -> None:
        """Create a new driver and let it start trials, as after the previous driver has died."""
        self.driver = Driver(self.folder, self.search, Preloader())

    def step(self) -> SearchState:
        self.driver._poll_once()
        self.driver._save(self.folder.state().ended)
        return self.folder.state()

    def unfinished(self) -> list[tuple[RunFolder, Trial]]:
        """Return the runs and trials of the repetitions that haven't ended."""
        return [(run, trial) for run, trial in trials_of("small") if not run.events_file.exists()]

    @staticmethod
    def finish(run: RunFolder, value: float | None) -> None:
        """End a run with the metric `value`, or as failed if it is None."""
        outcome: Any = "completed" if value is not None else "failed"
        events: list[AnyEvent] = [RunFinished(outcome=outcome)]
        if value is not None:
            events.insert(0, Validation(epoch=1, step=1, measures={"top1": value}, images=1, seconds=0.1))
        run.checkpoints.mkdir(exist_ok=True)
        (run.checkpoints / "best.pt").touch()
        run.events_file.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def test_repeats_replace_lucky_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed = ConfirmedSearch(monkeypatch, confirm=2)
    state = confirmed.step()
    assert (state.best, state.candidates, state.baseline) == (LUCKY, (LUCKY, SOLID, 0), 0)
    assert [(trial.number, trial.repeat_of, trial.params["seed"]) for _run, trial in confirmed.unfinished()] == [
        *((3, LUCKY, 1), (4, SOLID, 1), (5, 0, 1)),
    ]
    assert confirming_words(state) == "Confirming the best 3 settings with other seeds: 0 of 6 trained"
    assert (state.total, state.originals_total, state.originals_ended) == (9, 3, 3)
    reached = {LUCKY: [0.7, 0.6], SOLID: [0.75, 0.75], 0: [0.8, None]}
    while repeats := confirmed.unfinished():
        run, trial = repeats[0]
        assert trial.repeat_of is not None
        confirmed.finish(run, reached[trial.repeat_of][trial.params["seed"] - 1])
        confirmed.start_trials()  # killed after each repeat
        state = confirmed.step()
        if confirmed.unfinished():
            assert state.best == LUCKY, "the base ranking remains until all have ended"
            assert set(FIRST_VALUES) <= {
                trial.number for run, trial in trials_of("small") if list(run.checkpoints.glob("*.pt"))
            }
    assert (state.ended, state.total, len(state.trials)) == ("completed", 9, 9)
    assert {row.number: row.confirmed for row in state.originals} == {LUCKY: (0.7, 0.6), SOLID: (0.75, 0.75), 0: (0.8,)}
    assert (state.best, state.front) == (0, (0,))
    assert {trial.number for run, trial in trials_of("small") if list(run.checkpoints.glob("*.pt"))} == {0}
    assert confirming_words(state) == ""
    assert confirmed_words(state, str) == "0.8 over 1 other seed, with the job's own settings"


@pytest.mark.parametrize(
    ("trials", "space", "total"),
    [(9, RANGES, 9 + 2 * 4), (2, RANGES, 2 + 2 * 2), (9, SPACE, 9 + 2 * 3)],
    ids=["many", "few", "own-settings-outside"],
)
def test_total_includes_maximum_repeats(trials: int, space: dict[str, Any], total: int) -> None:
    search = small_search(space=space, trials=trials, confirm=2)
    folder = create_search(search)
    Driver(folder, search, Preloader())._save()
    assert (folder.state().total, folder.state().originals_total) == (total, trials)


def test_base_ranking_remains_if_all_repeats_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed = ConfirmedSearch(monkeypatch, confirm=1)
    confirmed.step()
    for run, _trial in confirmed.unfinished():
        confirmed.finish(run, None)
    state = confirmed.step()
    assert (state.ended, state.best, state.count("failed")) == ("completed", LUCKY, 3)
    assert confirmed_words(state, str) == ""


def test_repeats_are_outside_budget_and_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed = ConfirmedSearch(monkeypatch, confirm=1)
    confirmed.step()
    for run, trial in confirmed.unfinished():
        confirmed.finish(run, 0.7 + 0.1 * (trial.repeat_of or 0))
    assert confirmed.step().best == SOLID
    importance = confirmed.folder.state().importance
    confirmed.search = msgspec.structs.replace(confirmed.search, budget=Budget(trials=4))
    confirmed.start_trials()
    state = confirmed.step()
    ((_run, trial),) = confirmed.unfinished()
    assert (trial.number, trial.repeat_of) == (6, None)
    assert set(trial.known) == set(FIRST_VALUES)
    assert (state.best, state.candidates, state.importance) == (LUCKY, (), importance)
    confirmed.finish(_run, 0.85)
    state = confirmed.step()
    ((_run, trial),) = confirmed.unfinished()
    assert (trial.repeat_of, state.candidates) == (6, (LUCKY, 6, SOLID, 0))
    assert confirming_words(state) == "Confirming the best 4 settings with other seeds: 3 of 4 trained"
    confirmed.finish(_run, 0.85)
    assert confirmed.step().best == SOLID


def checkpoints(run_id: str) -> list[Path]:
    return list(RunFolder(paths.runs_folder() / run_id).checkpoints.glob("*.pt"))


def test_driver_ends_if_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = create_search(a_search())
    driver = Driver(folder, a_search(), Preloader())
    usage = shutil.disk_usage(folder.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=MIN_FREE_BYTES - 1))
    assert driver._poll_once()
    state = folder.state()
    assert (state.ended, list_runs()) == ("failed", [])
    assert state.cause.startswith("No trial can be started: less than 1 GiB is free on the disk of")
    assert "Free up space" in state.cause


@pytest.mark.parametrize(("limit_s", "attempts", "ended"), [(120.0, 3, "failed"), (0.0, 1, "")])
def test_driver_retries_to_save_the_final_state(
    monkeypatch: pytest.MonkeyPatch, limit_s: float, attempts: int, ended: str
) -> None:
    monkeypatch.setattr(driver_module, "SAVE_S", 0.01)
    monkeypatch.setattr(driver_module, "FINAL_SAVE_S", limit_s)
    folder = create_search(a_search())
    saved: list[str] = []

    def save(folder: SearchFolder, state: SearchState) -> None:
        saved.append(state.ended)
        if len(saved) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save_state(folder, state)

    save_state = SearchFolder.save_state
    monkeypatch.setattr(SearchFolder, "save_state", save)
    driver = Driver(folder, a_search(), Preloader())
    driver._end_cause = "the disk is full"
    assert driver._poll_once()
    assert saved == ["failed"] * attempts
    assert folder.state().ended == ended


def test_only_checkpoints_of_ended_trials_that_are_not_retained_are_deleted() -> None:
    cleared: list[int] = []

    def handle(number: int, *, ended: bool, is_cleared: bool = False) -> SimpleNamespace:
        row = SimpleNamespace(number=number)
        return SimpleNamespace(row=row, ended=ended, is_cleared=is_cleared, clear=lambda: cleared.append(number))

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
