"""Folders of hyperparameter searches, and the processes (drivers) that carry out the searches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem
from engine.contract.search import (
    DRIVER_FILE,
    DRIVER_LOCK,
    DRIVER_LOG,
    OPTION,
    SEARCH_FILE,
    STATE_FILE,
    TRIAL_FILE,
    DriverFile,
    Search,
    SearchState,
    Status,
    Trial,
    TrialRow,
)
from engine.runs.folder import RunFolder, create_run, is_process_alive, list_runs
from engine.runs.launch import start_detached, start_supervisor
from engine.system import paths
from engine.system.decode_errors import decode_file
from engine.system.file_locks import open_file, try_lock
from engine.system.files import MAX_RESULT_BYTES
from engine.system.format import counted

_START_TIMEOUT_S = 30.0
"""Maximum time in seconds for a new driver to record its process. Until then, the search counts as running."""

# Decoders that exist before a thread needs them: msgspec crashes if two threads prepare the same type at once.
_DECODERS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Search, SearchState, DriverFile, Trial)
}

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def searches_folder() -> Path:
    return paths.home() / "searches"


class SearchFolder:
    """Access to the folder of one search. Nothing is cached, so every method reads the disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def state_file(self) -> Path:
        """Path of the state file. Its modification time is that of the last change of the state."""
        return self.path / STATE_FILE

    def search(self) -> Search | None:
        """Read the user's request for the search. Returns None if it can't be read."""
        return _read_struct(self.path / SEARCH_FILE, Search)

    def state(self) -> SearchState:
        """Read the latest state of the search. It is empty if its driver process has not written any."""
        return _read_struct(self.state_file, SearchState) or SearchState(time=0.0)

    def driver(self) -> DriverFile | None:
        """Return the process that drives the search, or None if none is running."""
        found = _read_struct(self.path / DRIVER_FILE, DriverFile)
        return found if found is not None and is_process_alive(found.pid, found.start_time) else None

    def status(self) -> Status:
        """Determine the status of the search from the process table and the driver's last state."""
        # In this order, because a driver may record its process in the meantime.
        if self._is_starting() or self.driver() is not None:
            return "running"
        return self.state().ended or "interrupted"

    def _is_starting(self) -> bool:
        """Return True if a driver was started recently and has not recorded its process yet."""
        try:
            started = (self.path / DRIVER_LOG).stat().st_mtime  # set by `start_driver`
        except OSError:
            return False
        return not (self.path / DRIVER_FILE).exists() and time.time() - started < _START_TIMEOUT_S

    def save(self, search: Search) -> None:
        """Write the user's request for the search. Raises OSError."""
        _write_struct(self.path / SEARCH_FILE, search)

    def save_state(self, state: SearchState) -> None:
        """Write the state of the search. Raises OSError."""
        _write_struct(self.state_file, state)

    def save_driver(self, driver: DriverFile) -> None:
        """Record the process that drives the search. Raises OSError."""
        _write_struct(self.path / DRIVER_FILE, driver)


def list_searches() -> list[SearchFolder]:
    """Return all searches, sorted by name."""
    try:
        names = sorted(os.listdir(searches_folder()))
    except OSError:
        return []
    return [
        SearchFolder(searches_folder() / name) for name in names if (searches_folder() / name / SEARCH_FILE).is_file()
    ]


def create_search(search: Search) -> SearchFolder:
    """Save a search in the folder with its name, creating the folder if it is missing. Returns it. Raises OSError."""
    paths.make_home()
    folder = SearchFolder(paths.make_private_folder(searches_folder() / search.name))
    folder.save(search)
    return folder


def start_driver(folder: SearchFolder) -> int:
    """Start the driver of a search in its own session and return its pid. Raises OSError.

    If another driver is running, the new one exits immediately.
    """
    log = folder.path / DRIVER_LOG
    with open(log, "ab", opener=paths.open_private):
        os.utime(log)  # `status` takes this for the time of the start
    _remove_old_record(folder)
    return start_detached("engine.advisor.search", folder.path, DRIVER_LOG)


def _remove_old_record(folder: SearchFolder) -> None:
    """Remove the record of a search's driver process if that process has ended.

    A driver locks the folder while it runs, so the record of one that has just started is not removed.
    """
    lock = open_file(folder.path / DRIVER_LOCK, os.O_CREAT)
    try:
        if try_lock(lock):
            (folder.path / DRIVER_FILE).unlink(missing_ok=True)
    finally:
        os.close(lock)


def stop_driver(folder: SearchFolder) -> bool:
    """Ask the driver of a search to pause its trials and exit. Returns False if no driver is running.

    The driver exits after its trials have completed their steps and saved checkpoints. Poll `status` to wait for this.
    """
    driver = folder.driver()
    if driver is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(driver.pid, signal.SIGTERM)
    return True


def job_with(job: Job, params: Mapping[str, Any]) -> tuple[Job | None, list[Problem]]:
    """Create the job with other values of some fields and options. Return it with all problems.

    `params` has the values by field name, or by "options.NAME" for an option. The job is None if any problem is an
    error.
    """
    values = msgspec.to_builtins(job.values())
    values["options"] = dict(job.options)
    for name, value in params.items():
        if name.startswith(OPTION):
            values["options"][name.removeprefix(OPTION)] = value
        else:
            values[name] = value
    return job_from_values(values)


def best_job(search: Search, row: TrialRow) -> Job:
    """Return the job for training with the settings of the trial `row`.

    It has the devices and epochs that the search sets for the best settings. Raises ValueError if the settings of the
    trial, which come from a file, are not valid.
    """
    changes: dict[str, Any] = {"name": f"{search.name} best", "devices": search.devices[: search.devices_per_trial]}
    if search.best_epochs is not None:
        changes["epochs"] = search.best_epochs
    job, problems = job_with(search.job, row.params | changes)
    if job is None:
        raise ValueError(f"the settings of trial {row.number} are not those of a job: {problems[0]}")
    return job


def train_best(search: Search, row: TrialRow) -> RunFolder:
    """Start an ordinary run, which is not a trial, with the settings of a trial. Returns the run. Raises OSError."""
    run = create_run(best_job(search, row))
    start_supervisor(run)
    return run


def describe_pending_confirmations(state: SearchState) -> str:
    """Describe pending confirmations, e.g. "Confirming the best 4 settings with other seeds: 3 of 4 trained".

    Returns "" if there are none.
    """
    repeats = [row for row in state.trials if row.repeat_of is not None]
    current = [row for row in repeats if row.repeat_of in state.candidates]
    earlier_count = len(repeats) - len(current)  # repetitions of settings that were the best before
    total, trained = state.repeats - earlier_count, sum(row.ended for row in current)
    if not state.candidates or trained >= total:
        return ""
    which = f"best {len(state.candidates)} settings" if len(state.candidates) > 1 else "best settings"
    return f"Confirming the {which} with other seeds: {trained} of {total} trained"


def describe_confirmed_result(state: SearchState, format_value: Callable[[float], str]) -> str:
    """Describe the confirmed result, e.g. "0.853 over 1 other seed, 0.802 with the job's own settings".

    Returns "" if there is none. `format_value` formats a value of the goal.
    """
    best, baseline = state.row(state.best), state.row(state.baseline)
    if best is None or best.mean is None:
        return ""
    confirmed = f"{format_value(best.mean)} over {counted(len(best.confirmed), 'other seed')}"
    if best is baseline:
        return f"{confirmed}, with the job's own settings"
    if baseline is None or baseline.mean is None:
        return confirmed
    return f"{confirmed}, {format_value(baseline.mean)} with the job's own settings"


def _read_struct(file: Path, kind: type[_Struct]) -> _Struct | None:
    """Read a file with JSON of type `kind`. Returns None if it is missing or invalid."""
    decoder: msgspec.json.Decoder[_Struct] = _DECODERS[kind]
    return decode_file(file, decoder, MAX_RESULT_BYTES)


def _write_struct(file: Path, content: msgspec.Struct) -> None:
    """Write `content` as JSON, atomically, and flush it to the disk. Raises OSError."""
    paths.write_atomically(file, msgspec.json.encode(content), sync=True)


def trial_of(run: RunFolder) -> Trial | None:
    """Read the trial to which a run belongs. Returns None if the run is not a trial."""
    return _read_struct(run.path / TRIAL_FILE, Trial)


def save_trial(run: RunFolder, trial: Trial) -> None:
    """Record the trial to which a run belongs. Raises OSError."""
    _write_struct(run.path / TRIAL_FILE, trial)


def trials_of(search: str) -> list[tuple[RunFolder, Trial]]:
    """Return the trials of a search with their runs, sorted by number.

    If several runs have the same trial number, only the oldest one is included.
    """
    by_number: dict[int, tuple[RunFolder, Trial]] = {}
    for run in list_runs():  # newest first, so that the oldest run of a number remains
        trial = trial_of(run)
        if trial is not None and trial.search == search:
            by_number[trial.number] = (run, trial)
    return [by_number[number] for number in sorted(by_number)]


def tag_of(search: str) -> str:
    """Return the tag that marks all runs of a search in the run list."""
    return f"search {search}"
