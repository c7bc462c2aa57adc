"""Driver of a search, which starts trials as ordinary runs, stops bad ones early, and repeats the best.

All of its state is in the folders of the runs. If the driver is killed, active trials continue. After a restart, the
driver reads all trials and manages the active ones again.
"""

from __future__ import annotations

import select
import shutil
import sys
import time
from functools import partial

import msgspec

from engine.advisor.search import budget, confirming
from engine.advisor.search.study import Study
from engine.advisor.search.trial_handle import TrialHandle
from engine.checks.job_checks import problems
from engine.checks.search_checks import MIN_FREE_BYTES
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.protocol import Pause, Stop
from engine.contract.search import CONFIRMED, DRIVER_LOG, Search, SearchState, Trial, TrialRow
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader
from engine.runs.notes import change_notes
from engine.runs.searches import SearchFolder, job_with, save_trial, tag_of, trials_of
from engine.supervisor.environment import usable_cores
from engine.system.format import listed

TICK_S = 0.1
"""Seconds between polls of the active trials' logs. Between two trials, a device is idle for about this time."""
SAVE_S = 0.25
"""Minimum time between two saves of the state while trials report, in seconds."""
IDLE_SAVE_S = 15.0
"""Seconds between saves of the search's state while nothing changes.

They record the working time, which counts against the budget.
"""
FINAL_SAVE_S = 600.0
"""Maximum time in seconds for retrying to save the final state, e.g. until there is space on the disk."""
READY_S = 60.0
"""Maximum time in seconds to wait until the preloader has imported PyTorch."""
MAX_ATTEMPTS = 200
"""Maximum number of attempts to find settings for a trial, since many may be impossible or already tried."""
MAX_FAILED = 3
"""Number of failed trials that ends the search if no other trial has succeeded."""


class Driver:
    """Scheduler of a search's trials. It starts, prunes and repeats them, and saves the search's state in its folder.

    Runs are started with `preloader`, which is closed at the end.
    """

    def __init__(self, folder: SearchFolder, search: Search, preloader: Preloader) -> None:
        """Read the trials of the search, whose runs may be active, from their folders."""
        self._folder = folder
        self._search = search
        self._catalogue: Catalogue = load_catalogue()
        self._study = Study(search, self._catalogue)
        self._preloader = preloader
        self._slots = _create_slots(search)  # groups of devices, each for one trial at a time
        self._handles = {trial.number: TrialHandle(search, run, trial) for run, trial in trials_of(search.name)}
        before = folder.state()
        # Working time of earlier drivers, in total and for repeats.
        self._worked_before_s, self._started = before.worked_s, time.monotonic()
        self._confirming_before_s, self._confirming_since = before.confirming_s, self._started
        # Settings of the baseline trial, or None if the space doesn't include those of the job.
        self._job_settings = self._study.job_settings()
        self._to_confirm: tuple[int, ...] | None = None
        """Numbers of the trials that are repeated, or () if none is.

        It is None while original trials are running or can be started.
        """
        self._confirmed: dict[int, tuple[float, ...]] = {}  # values of each repeated trial, by number
        self._retained_checkpoints: set[int] = set()
        """Numbers of the trials whose checkpoints must not be deleted."""
        self._ranked_state: tuple[object, ...] = ()  # state for which `_rank` has determined the best trials
        self._front: tuple[int, ...] = ()  # numbers of the best trials
        self._importance: dict[str, float] = {}  # importance of each varied field
        self._has_changed = True  # True if the state has changed since it was saved
        self._saved_at = 0.0  # time at which it was saved
        self._end_requests = 0  # number of calls of `end`
        self._is_exhausted = False  # True if all settings of the space have been tried
        self._end_cause = ""
        """Reason why the search ends early, or "". If it is set, no more settings are tried."""
        # Continuing a search also resumes its paused and interrupted trials.
        self._to_resume = {
            number for number, handle in self._handles.items() if handle.row.state in ("paused", "interrupted")
        }

    def end(self) -> None:
        """Pause the active trials and end the search. A second call ends the search without waiting for the trials.

        It is safe to call this in a signal handler.
        """
        self._end_requests += 1

    def run(self) -> None:
        """Run the search until the budget is used up, the search can't continue, or `end` is called."""
        try:
            self._save()
            self._wait_for_preloader()
            while not self._poll_once():
                time.sleep(TICK_S)
        except Exception as error:
            self._end_cause = (
                f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in {DRIVER_LOG}."
            )
            self._save_end("failed")
            raise
        finally:
            self._preloader.close()

    def _poll_once(self) -> bool:
        """Poll all trials and start new ones. Return True if the search has ended."""
        self._preloader.poll()  # starts the runs that a killed preloader has not started
        for handle in self._handles.values():
            may_change = not handle.ended or handle.row.number in self._to_resume
            if may_change and handle.poll():
                self._has_changed = True
            if handle.row.state == "interrupted":
                self._to_resume.add(handle.row.number)
        active = [handle for handle in self._handles.values() if handle.is_active]
        if self._end_requests:
            for handle in active:
                handle.send(Pause())
            if not active or self._end_requests > 1:  # a second request does not wait for the trials
                self._save_end("stopped")
                return True
        else:
            self._prune(active)
            self._end_cause = self._end_cause or self._explain_if_all_failed()
            try:
                self._start_trials()
            except OSError as error:
                self._end_cause = f"No trial can be started: {error}. Free up space or get write permission there."
        self._rank()
        are_all_deleted = self._delete_checkpoints()
        is_any_active = any(handle.is_active for handle in self._handles.values())
        can_finish = are_all_deleted and not is_any_active and not self._end_requests
        if can_finish and self._finish_if_done():
            return True
        now = time.monotonic()
        if now > self._saved_at + (SAVE_S if self._has_changed else IDLE_SAVE_S):
            self._save()
        return False

    def _finish_if_done(self) -> bool:
        """If there is nothing left to do, save the final state and return True."""
        has_more_to_do = self._to_resume or self._may_start() or self._list_missing_repeats()
        if has_more_to_do and not self._end_cause:
            return False
        if self._end_cause:
            self._save_end("failed")
            return True
        paused = [handle.row.title for handle in self._handles.values() if handle.row.state == "paused"]
        if paused:
            which = f"Trial {paused[0]} is" if len(paused) == 1 else f"Trials {listed(paused)} are"
            self._end_cause = f"{which} paused. Continue the search to resume."
        self._save_end("stopped" if paused else "completed")
        return True

    # Trials

    def _prune(self, active: list[TrialHandle]) -> None:
        """Stop the active trials that the search's pruner considers worse than others at the same epoch.

        The decision is made once per epoch, and saved with the trial. Repeats are never stopped.
        """
        known = [handle.known for handle in self._originals]
        for handle in active:
            if handle.trial.repeat_of is not None:
                continue
            if handle.trial.pruned:  # decided before; `send` sends the command only once
                handle.send(Stop())
                continue
            is_new_epoch = handle.pruning_epoch < handle.row.epoch < handle.row.epochs  # the last one is not checked
            if self._search.pruner != "none" and is_new_epoch and handle.row.reported:
                handle.pruning_epoch = handle.row.epoch
                is_pruned, attrs = self._study.should_prune(known, handle.row.number)
                is_pruned = is_pruned and handle.row.number > 0  # the first trial is the baseline
                try:
                    handle.save(msgspec.structs.replace(handle.trial, pruned=is_pruned, attrs=attrs))
                except OSError:
                    handle.pruning_epoch = 0  # the disk is full; retried at the next poll
                    continue
                if is_pruned:
                    handle.send(Stop())

    def _start_trials(self) -> None:
        """Resume, start or repeat trials as long as devices are free. Raises OSError."""
        free = self._list_free_slots()
        while free and self._to_resume:
            handle = self._handles[min(self._to_resume)]
            self._to_resume.remove(handle.row.number)
            # The trial may have ended or been resumed by the user in the meantime.
            if not handle.ended and not handle.is_active:
                handle.resume(free.pop(0), self._start)
                self._has_changed = True
        while free and not self._end_cause and self._may_start():
            self._start_next(free.pop(0))
        # The best trials are repeated with other seeds only when no original trial can change their order.
        if self._to_confirm is None and self._are_originals_done():
            self._to_confirm = self._select_best_trials() if self._search.confirm else ()
            self._confirming_since = time.monotonic()
        while free and (missing := self._list_missing_repeats()):
            number, seed = missing[0]
            self._start_repeat(number, seed, free.pop(0))

    def _list_free_slots(self) -> list[tuple[str, ...]]:
        """Return the groups of devices that no trial of this search uses now."""
        free = list(self._slots)
        for handle in self._handles.values():
            if handle.is_active and handle.devices is not None:
                devices = set(handle.devices)
                occupied = next(
                    (slot for slot in free if devices.intersection(slot)), None
                )  # only one, as in CPU slots
                if occupied is not None:
                    free.remove(occupied)
        return free

    def _may_start(self) -> bool:
        """Return True if the budget allows another trial, not counting those that confirm the best settings.

        If all trials have failed, return False.
        """
        if self._explain_if_all_failed():
            return False
        rows, limits = self._original_rows, self._search.budget
        worked_s = self._compute_worked_s() - self._compute_confirming_s()
        return not self._is_exhausted and not budget.is_used_up(limits, rows, worked_s)

    def _explain_if_all_failed(self) -> str:
        """Return the reason to end the search if all of several trials have failed, otherwise ""."""
        rows, limits = self._original_rows, self._search.budget
        failed = [row for row in rows if row.state == "failed"]
        enough_failures = min(MAX_FAILED, limits.trials or MAX_FAILED)
        are_all_failed = len(rows) >= enough_failures and len(failed) == len(rows)
        return f"All trials have failed: {failed[-1].cause}" if are_all_failed else ""

    def _start_next(self, devices: tuple[str, ...]) -> None:
        """Start the next trial that is not a repeat on `devices`. Raises OSError.

        If all combinations of settings have been tried, set `_is_exhausted`. If no valid settings are found, set
        `_end_cause`, which ends the search.
        """
        number = max(self._handles, default=-1) + 1
        chosen = self._choose_settings(number, devices)
        if isinstance(chosen, Problem):
            self._end_cause = f"No possible settings were found in {MAX_ATTEMPTS} tries. {chosen}"
        elif chosen is None:
            self._is_exhausted = True
        else:
            trial, job = chosen
            self._create_run(trial, job)

    def _are_originals_done(self) -> bool:
        """Return True if all original trials have ended and no more will start, so that the best trials can be repeated."""
        return all(handle.ended for handle in self._originals) and not self._may_start() and not self._end_cause

    def _list_missing_repeats(self) -> list[tuple[int, int]]:
        """Return the repeats that have not started, as (trial number, seed) pairs."""
        search, repeats = self._search, [handle.row for handle in self._repeats]
        return confirming.list_missing_repeats(
            self._to_confirm or (), repeats, search.confirm, search.job.training.seed
        )

    def _start_repeat(self, original: int, seed: int, devices: tuple[str, ...]) -> None:
        """Start a repeat of trial `original` with a different seed on `devices`. Raises OSError."""
        number = max(self._handles) + 1
        params = self._handles[original].trial.params | {"seed": seed}
        trial = Trial(
            search=self._search.name, number=number, params=params, seed=self._search.seed, repeat_of=original
        )
        job, found = job_with(self._search.job, params | self._run_fields(f"{original}, seed {seed}", devices))
        if job is None:
            raise ValueError(f"the settings of trial {original} are not those of a job: {found[0]}")
        self._create_run(trial, job)

    def _create_run(self, trial: Trial, job: Job) -> None:
        """Create the run of a trial, and start it. Raises OSError, also if the disk is nearly full."""
        folder = self._folder.path
        if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
            raise OSError(f"less than 1 GiB is free on the disk of {folder}")
        run = create_run(job, partial(_save_trial, trial=trial))
        self._start(run)
        self._handles[trial.number] = TrialHandle(self._search, run, trial)
        self._has_changed = True

    def _choose_settings(self, number: int, devices: tuple[str, ...]) -> tuple[Trial, Job] | Problem | None:
        """Choose settings for trial `number` that are valid and have not been tried. Return the trial and its job.

        If all attempts fail, the problem of the last attempt is returned, or None if all combinations have been tried.
        """
        known = [handle.known for handle in self._originals]
        tried = [each.trial.params for each in known]
        problem: Problem | None = None
        for attempt in range(MAX_ATTEMPTS):
            trial = self._study.ask(known, number, attempt)
            if trial is None:
                return None
            if trial.params in tried:
                continue
            job, found = job_with(self._search.job, trial.params | self._run_fields(str(number), devices))
            if job is not None:
                found = errors([*found, *problems(job, self._catalogue)])
                if not found:
                    return trial, job
            problem = found[0]
        return problem

    def _run_fields(self, title: str, devices: tuple[str, ...]) -> dict[str, object]:
        """Return the job fields, other than the varied settings, that differ between the runs of a search.

        `title` is the title of the trial.
        """
        name = f"{self._search.name} {title}"
        fields: dict[str, object] = {"name": name, "devices": list(devices), "start": "when_free"}
        has_threads = self._search.job.precision.cpu_threads is not None or "cpu_threads" in self._search.space
        # CPU workers of all trials run at the same time, so they divide the cores.
        if set(devices) == {CPU} and not has_threads:
            fields["cpu_threads"] = max(1, usable_cores() // len(self._search.devices))
        return fields

    def _start(self, run: RunFolder) -> None:
        """Start a run, with the preloader if it is available. Raises OSError."""
        self._wait_for_preloader()
        self._preloader.start_run(run)

    def _wait_for_preloader(self) -> None:
        """Start the preloader, and wait until it has imported PyTorch or exited, for at most `READY_S`."""
        self._preloader.start()
        deadline = time.monotonic() + READY_S
        while self._preloader.alive and not self._preloader.ready and time.monotonic() < deadline:
            select.select([self._preloader], [], [], TICK_S)
            self._preloader.poll()

    # State

    def _rank(self) -> None:
        """Update the best trials, the importance of fields and the values of the repeats.

        Does nothing unless a trial has ended or the trials to repeat have been chosen since the last call.
        """
        current_state = (sum(handle.ended for handle in self._handles.values()), self._to_confirm)
        if current_state != self._ranked_state:
            self._ranked_state = current_state
            results = [handle.known for handle in self._originals]
            self._front, self._importance = self._study.compute_front(results), self._study.compute_importance(results)
            self._update_confirmed()
            self._has_changed = True

    def _delete_checkpoints(self) -> bool:
        """Delete the checkpoints of ended trials that can't become the best.

        Returns False if some of these trials still have a supervisor, so that it must be called again.
        """
        if self._search.keep_checkpoints:
            return True
        superfluous = [
            handle
            for handle in self._handles.values()
            if handle.ended and handle.row.number not in self._retained_checkpoints
        ]
        for handle in superfluous:
            if not handle.is_cleared:
                handle.delete_checkpoints()
        return all(handle.is_cleared for handle in superfluous)

    def _update_confirmed(self) -> None:
        """Update the values of the repeats, the best trial, and the trials whose checkpoints are retained.

        Once all repeats have ended, the trial with the best repeats becomes the best trial.
        """
        goal, repeats = self._search.goals[0], [handle.row for handle in self._repeats]
        results = confirming.collect_repeat_results(repeats)
        self._confirmed = {number: values for number, values in results.items() if number in self._handles}
        have_all_started = self._to_confirm is not None and not self._list_missing_repeats()
        is_over = have_all_started and all(row.ended for row in repeats)
        # Without trials to repeat, the front of the original trials stays the result.
        best = confirming.find_best_mean(self._confirmed, goal) if is_over and self._to_confirm else None
        self._front = (best,) if best is not None else self._front
        self._retained_checkpoints = set(self._front)
        if self._search.confirm and not is_over:
            self._retained_checkpoints |= {*self._confirmed, *self._select_best_trials()}

    def _select_best_trials(self) -> tuple[int, ...]:
        """Return the numbers of the trials that would be repeated if all original trials had ended now."""
        return confirming.select_candidates(self._original_rows, self._search.goals[0], self._baseline)

    @property
    def _originals(self) -> list[TrialHandle]:
        """All trials of the search except repeats."""
        return [handle for handle in self._handles.values() if handle.trial.repeat_of is None]

    @property
    def _original_rows(self) -> list[TrialRow]:
        return [handle.row for handle in self._originals]

    @property
    def _repeats(self) -> list[TrialHandle]:
        """Trials that repeat another one with a different seed."""
        return [handle for handle in self._handles.values() if handle.trial.repeat_of is not None]

    @property
    def _baseline(self) -> int | None:
        """Number of the completed trial with the unchanged job, or None."""
        return confirming.find_baseline(self._original_rows, self._job_settings)

    def _compute_worked_s(self) -> float:
        """Return the working time of the search in seconds, including that of earlier drivers."""
        return self._worked_before_s + time.monotonic() - self._started

    def _compute_confirming_s(self) -> float:
        """Return the portion of the working time that was spent on repeats, in seconds."""
        since = time.monotonic() - self._confirming_since if self._to_confirm else 0.0
        return self._confirming_before_s + since

    def _save_end(self, ended: str) -> None:
        """Save the final state, with the status `ended`.

        If this fails, it is retried for up to `FINAL_SAVE_S`, or until `end` has been called twice.
        """
        deadline = time.monotonic() + FINAL_SAVE_S
        while not self._save(ended) and self._end_requests < 2 and time.monotonic() < deadline:
            time.sleep(SAVE_S)

    def _save(self, ended: str = "") -> bool:
        """Save the state of the search, with the status `ended` if it has ended. Return False if this fails."""
        rows = tuple(
            msgspec.structs.replace(handle.row, confirmed=self._confirmed.get(number, ()))
            for number, handle in sorted(self._handles.items())
        )
        total, repeats = self._count_originals(), self._count_repeats()
        state = SearchState(
            time=time.time(),
            ended=ended,  # type: ignore[arg-type]
            trials=rows,
            best=self._front[0] if len(self._search.goals) == 1 and self._front else None,
            front=self._front,
            importance=self._importance,
            worked_s=round(self._compute_worked_s(), 1),
            seconds_left=None if ended else self._estimate_seconds_left(repeats),
            total=total + repeats if total is not None else None,
            cause=self._end_cause,
            candidates=self._to_confirm or (),
            baseline=self._baseline,
            repeats=repeats,
            confirming_s=round(self._compute_confirming_s(), 1),
        )
        self._saved_at, self._has_changed = time.monotonic(), False
        try:
            self._folder.save_state(state)
        except OSError as error:
            print(f"The state can't be written: {error}", file=sys.stderr, flush=True)
            self._has_changed = True  # saved again later
            return False
        return True

    def _estimate_seconds_left(self, repeats: int) -> float | None:
        """Estimate the remaining time in seconds, given the total number of repeats. None if it is unknown."""
        are_originals_done = self._to_confirm is not None  # the trials to repeat are selected then
        return budget.estimate_seconds_left(
            self._search,
            self._original_rows,
            [handle.row for handle in self._repeats],
            worked_s=self._compute_worked_s() - self._compute_confirming_s(),  # without the time for repeats
            repeat_count=repeats,
            are_originals_done=are_originals_done,
        )

    def _count_originals(self) -> int | None:
        """Return the total number of original trials, or None if it is unknown."""
        are_all_started = self._to_confirm is not None or self._is_exhausted
        return len(self._originals) if are_all_started else self._search.budget.trials

    def _count_repeats(self) -> int:
        """Return the total number of repeats. While the trials to repeat are unknown, return its maximum."""
        if self._to_confirm is not None:
            return len(self._repeats) + len(self._list_missing_repeats())
        max_candidates = CONFIRMED
        if self._job_settings is not None:  # the baseline is repeated, too
            max_candidates += 1
        if self._search.budget.trials is not None:
            max_candidates = min(max_candidates, self._search.budget.trials)
        return len(self._repeats) + self._search.confirm * max_candidates


def _create_slots(search: Search) -> list[tuple[str, ...]]:
    """Divide the search's devices into groups. Each group runs one trial at a time."""
    size = search.devices_per_trial
    return [search.devices[at : at + size] for at in range(0, len(search.devices), size)]


def _save_trial(run: RunFolder, trial: Trial) -> None:
    """Tag a new run with the name of its search, and write the description of its trial. Raises OSError."""
    change_notes(run.path, tags=(tag_of(trial.search),))
    save_trial(run, trial)
