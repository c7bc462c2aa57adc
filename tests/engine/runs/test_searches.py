"""Status of a hyperparameter search, from its driver's process and files."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from engine.contract.job import Job, save_job
from engine.contract.search import DRIVER_LOCK, DRIVER_LOG, DriverFile, Trial
from engine.runs import searches
from engine.runs.folder import RunFolder, process_start
from engine.runs.searches import (
    SearchFolder,
    best_job,
    describe_confirmed_result,
    describe_pending_confirmations,
    list_searches,
    save_trial,
    searches_folder,
    start_driver,
    trials_of,
)
from engine.system import paths
from engine.system.file_locks import open_file, try_lock
from tests.support.made_searches import make_search, make_search_config, make_state, make_trial


@pytest.mark.parametrize(
    ("log_age_s", "driver", "ended", "expected"),
    [
        (None, None, "", "interrupted"),
        (None, None, "failed", "failed"),
        (5, None, "", "running"),
        (5, None, "completed", "running"),
        (60, None, "", "interrupted"),
        (5, "dead", "", "interrupted"),
        (5, "dead", "completed", "completed"),
        (60, "alive", "completed", "running"),
    ],
)
def test_search_status(log_age_s: int | None, driver: str | None, ended: str, expected: str) -> None:
    folder = make_search("flowers", 2)
    folder.save_state(make_state(2, ended=ended))
    if log_age_s is not None:
        (folder.path / DRIVER_LOG).touch()
        os.utime(folder.path / DRIVER_LOG, (time.time() - log_age_s,) * 2)
    if driver is not None:
        start = process_start(os.getpid())
        folder.save_driver(DriverFile(pid=os.getpid(), start_time=start if driver == "alive" else start - 60))
    assert folder.status() == expected


def test_driver_that_records_itself_meanwhile_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_search("flowers", 2)
    (folder.path / DRIVER_LOG).touch()
    read_driver = SearchFolder.driver

    def read_too_early(self: SearchFolder) -> DriverFile | None:
        found = read_driver(self)
        folder.save_driver(DriverFile(pid=os.getpid(), start_time=process_start(os.getpid())))
        return found

    monkeypatch.setattr(SearchFolder, "driver", read_too_early)
    assert folder.status() == "running"


def test_second_start_keeps_the_record_of_a_running_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "start_detached", lambda *_arguments: 1)
    folder = make_search("flowers", 2)
    (folder.path / DRIVER_LOG).touch()
    os.utime(folder.path / DRIVER_LOG, (0, 0))
    lock = open_file(folder.path / DRIVER_LOCK, os.O_CREAT)
    assert try_lock(lock)
    folder.save_driver(DriverFile(pid=os.getpid(), start_time=process_start(os.getpid())))
    start_driver(folder)
    assert folder.driver() is not None
    os.close(lock)
    start_driver(folder)
    assert (folder.driver(), folder.status()) == (None, "running")


def test_words_count_the_repeats_of_candidates() -> None:
    rows = [
        msgspec.structs.replace(make_trial(number, state), repeat_of=repeated)
        for number, (repeated, state) in enumerate([(None, "completed")] * 3 + [(0, "completed"), (0, "running"), (2, "completed")])  # type: ignore[arg-type]
    ]  # fmt: skip
    state = make_state(6, trials=tuple(rows), candidates=(0, 1), repeats=5, best=0, baseline=1)
    assert describe_pending_confirmations(state) == "Confirming the best 2 settings with other seeds: 1 of 4 trained"
    one = msgspec.structs.replace(state, candidates=(2,), repeats=4)
    assert describe_pending_confirmations(one) == "Confirming the best settings with other seeds: 1 of 2 trained"
    for fields in ({"candidates": ()}, {"candidates": (2,), "repeats": 3}):
        assert describe_pending_confirmations(msgspec.structs.replace(state, **fields)) == ""
    assert describe_confirmed_result(state, "{:.2f}".format) == ""
    rows[0], rows[1] = (msgspec.structs.replace(rows[number], confirmed=(0.5 + number, 0.7)) for number in (0, 1))
    for best, baseline, expected in (
        (0, 1, "0.60 over 2 other seeds, 1.10 with the job's own settings"),
        (1, 1, "1.10 over 2 other seeds, with the job's own settings"),
        (0, 2, "0.60 over 2 other seeds"),
        (0, None, "0.60 over 2 other seeds"),
    ):
        confirmed = msgspec.structs.replace(state, trials=tuple(rows), best=best, baseline=baseline)
        assert describe_confirmed_result(confirmed, "{:.2f}".format) == expected


def test_best_job_overrides_devices_and_epochs() -> None:
    search = make_search_config(devices=("cpu", "cpu:1", "cpu:2"), devices_per_trial=2, best_epochs=7)
    search = msgspec.structs.replace(search, job=search.job.with_fields(options={"first": 1}))
    params = {"epochs": 3, "momentum": 0.5, "devices": ["cpu"], "options.second": 2}
    row = msgspec.structs.replace(make_trial(3), params=params)
    full = best_job(search, row)
    assert (full.name, full.parallel.devices, full.training.epochs) == ("flowers best", ("cpu", "cpu:1"), 7)
    assert (full.optimizer.momentum, full.model.name) == (0.5, search.job.model.name)
    assert full.options == {"first": 1, "second": 2}
    assert best_job(msgspec.structs.replace(search, best_epochs=None), row).training.epochs == 3


def test_trials_are_the_oldest_runs_of_their_numbers() -> None:
    for day, number, search in ((1, 1, "flowers"), (2, 0, "flowers"), (3, 1, "flowers"), (4, 2, "other")):
        run = RunFolder(paths.make_private_folder(paths.runs_folder() / f"2026010{day}-000000-net-0000"))
        save_trial(run, Trial(search=search, number=number, params={}, seed=0))
        save_job(Job(), run.job_file)
    assert [(run.run_id[:8], trial.number) for run, trial in trials_of("flowers")] == [("20260102", 0), ("20260101", 1)]


def test_searches_are_sorted_and_have_a_request() -> None:
    for name in ("b", "a"):
        make_search(name, 1)
    (searches_folder() / "0").mkdir()
    assert [folder.name for folder in list_searches()] == ["a", "b"]
