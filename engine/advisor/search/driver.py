"""The process that drives a search: it starts trials as ordinary runs, stops the worse ones early, trains the best
again with other seeds, and writes down how all stand.

It holds nothing that is not in the folders of the runs. Killed, it leaves the trials in hand to themselves; started
again, it reads all trials and takes those in hand up where they are, whoever is still running.
"""

from __future__ import annotations

import select
import shutil
import sys
import time
from functools import partial

import msgspec

from engine.advisor.search import budget, confirming
from engine.advisor.search.hand import Hand
from engine.advisor.search.study import Study
from engine.checks.job_checks import problems
from engine.checks.search_checks import LEAST_FREE_BYTES
from engine.contract.catalogue import Catalogue, load_catalogue
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.protocol import Pause, Stop
from engine.contract.search import CONFIRMED, DRIVER_LOG, Search, SearchState, Trial, TrialRow
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader
from engine.runs.notes import change_notes
from engine.runs.searches import SearchFolder, job_with
from engine.runs.trials import save_trial, tag_of, trials_of
from engine.supervisor.environment import usable_cores
from engine.system.format import listed

TICK_S = 0.1
"""How often the logs of the trials in hand are looked at, and so how long a device may be idle between two trials."""
SAVE_S = 0.25
"""How often at most the state is written while trials report, and how much of it a killed driver loses."""
STILL_SAVE_S = 15.0
"""How often at least: the time that was worked counts against the budget."""
READY_S = 60.0
"""How long the process that has PyTorch in memory is waited for at the start."""
TRIES = 200
"""Of settings for one trial, where many are impossible or have been tried."""
HOPELESS = 3
"""So many failed trials without any that did not, and the search ends."""


class Driver:
    """Drives the search of a folder to its end; `preloader` starts the runs, and is closed then."""

    def __init__(self, folder: SearchFolder, search: Search, preloader: Preloader) -> None:
        self._folder = folder
        self._search = search
        self._catalogue: Catalogue = load_catalogue()
        self._study = Study(search, self._catalogue)
        self._preloader = preloader
        self._slots = _slots(search)
        self._hands = {trial.number: Hand(search, run, trial) for run, trial in trials_of(search.name)}
        before = folder.state()
        self._worked_before_s, self._began = before.worked_s, time.monotonic()
        self._confirming_before_s, self._confirming_since = before.confirming_s, self._began
        self._own_settings = self._study.own_settings()
        self._candidates: tuple[int, ...] | None = None
        """The trials that are confirmed; None until the search's own have all ended."""
        self._confirmed: dict[int, tuple[float, ...]] = {}
        self._kept: set[int] = set()
        """The trials whose checkpoints are not deleted."""
        self._ranked: tuple[object, ...] = ()
        self._front: tuple[int, ...] = ()
        self._importance: dict[str, float] = {}
        self._changed, self._saved_at = True, 0.0
        self._asked_to_end = 0
        self._exhausted = False
        self._cause = ""
        # Whoever presses “continue” means those too that were paused or had broken off.
        self._to_resume = {
            number for number, hand in self._hands.items() if hand.row.state in ("paused", "interrupted")
        }

    def end(self) -> None:
        """Pauses the trials in hand and ends; asked for again, leaves them to end by themselves. For a signal
        handler.
        """
        self._asked_to_end += 1

    def run(self) -> None:
        """Returns once the budget is used up, the search can't go on, or `end` was called."""
        try:
            self._save()
            self._warm()
            while not self._step():
                time.sleep(TICK_S)
        except Exception as error:
            self._cause = f"Footplate itself failed: {type(error).__name__}: {error}. The traceback is in {DRIVER_LOG}."
            self._save("failed")
            raise
        finally:
            self._preloader.close()

    def _step(self) -> bool:
        """Whether it was the last one."""
        for hand in self._hands.values():
            if (not hand.ended or hand.row.number in self._to_resume) and hand.look():
                self._changed = True
            if hand.row.state == "interrupted":
                self._to_resume.add(hand.row.number)
        active = [hand for hand in self._hands.values() if hand.active]
        if self._asked_to_end:
            for hand in active:
                hand.tell(Pause())
            if not active or self._asked_to_end > 1:
                self._save("stopped")
                return True
        else:
            self._stop_worse(active)
            try:
                self._fill()
            except OSError as error:
                self._cause = f"No trial can be started: {error}. Make room or get write permission there."
        self._rank()
        at_rest = self._cleared() and not any(hand.active for hand in self._hands.values())
        if at_rest and not self._asked_to_end and self._nothing_left():
            return True
        now = time.monotonic()
        if now > self._saved_at + (SAVE_S if self._changed else STILL_SAVE_S):
            self._save()
        return False

    def _nothing_left(self) -> bool:
        """Writes how the search ended, where it has."""
        if self._cause:
            self._save("failed")
            return True
        if self._to_resume or self._may_start() or self._repeats_left():
            return False
        if self._cause:
            return self._nothing_left()
        paused = [hand.row.title for hand in self._hands.values() if hand.row.state == "paused"]
        if paused:
            which = f"Trial {paused[0]} is" if len(paused) == 1 else f"Trials {listed(paused)} are"
            self._cause = f"{which} paused. Continue the search to resume."
        self._save("stopped" if paused else "completed")
        return True

    # Trials

    def _stop_worse(self, active: list[Hand]) -> None:
        known = [hand.known for hand in self._own]
        for hand in active:
            if hand.trial.again is not None:
                continue
            if hand.trial.pruned:
                hand.tell(Stop())
            elif self._search.pruner != "none" and hand.judged < hand.row.epoch < hand.row.epochs and hand.row.reported:
                hand.judged = hand.row.epoch
                worse, attrs = self._study.worse(known, hand.row.number)
                worse = worse and hand.row.number > 0  # the first is what the others are seen beside
                try:
                    hand.keep(msgspec.structs.replace(hand.trial, pruned=worse, attrs=attrs))
                except OSError:
                    hand.judged = 0  # its disk is full; the next look tries again
                    continue
                if worse:
                    hand.tell(Stop())

    def _fill(self) -> None:
        """Starts trials for as long as there are free devices and there is something to start. Raises OSError."""
        free = self._free()
        while free and self._to_resume:
            hand = self._hands[min(self._to_resume)]
            self._to_resume.remove(hand.row.number)
            if not hand.ended and not hand.active:
                hand.resume(free.pop(0), self._start)
                self._changed = True
        while free and not self._cause and self._may_start():
            self._begin(free.pop(0))
        if self._candidates is None and self._own_is_done():
            self._candidates = self._best_few() if self._search.confirm else ()
            self._confirming_since = time.monotonic()
        while free and (left := self._repeats_left()):
            self._repeat(*left[0], free.pop(0))

    def _free(self) -> list[tuple[str, ...]]:
        """The groups of devices on which no trial of this search is."""
        free = list(self._slots)
        for hand in self._hands.values():
            if hand.active and hand.devices is not None:
                there = (slot for slot in free if slot == hand.devices or set(slot) & set(hand.devices))
                if (slot := next(there, None)) is not None:
                    free.remove(slot)
        return free

    def _may_start(self) -> bool:
        """Whether the budget, and what has come of it so far, allow another trial."""
        rows, allowed = self._own_rows, self._search.budget
        failed = [row for row in rows if row.state == "failed"]
        if len(failed) == len(rows) >= min(HOPELESS, allowed.trials or HOPELESS):
            self._cause = f"Every trial so far has failed: {failed[-1].cause}"
            return False
        return not self._exhausted and not budget.used_up(allowed, rows, self._worked_s() - self._confirming_s())

    def _begin(self, devices: tuple[str, ...]) -> None:
        """Starts the next trial. Raises OSError."""
        number = max(self._hands, default=-1) + 1
        found = self._possible(number, devices)
        if isinstance(found, Problem):
            self._cause = f"No possible settings were found in {TRIES} tries. {found}"
        elif found is None:
            self._exhausted = True  # all that the space holds has been tried
        else:
            self._create(*found)

    def _own_is_done(self) -> bool:
        """Whether all of the search's own trials have ended and no other is to begin, so that the best can be
        confirmed.
        """
        return all(hand.ended for hand in self._own) and not self._may_start() and not self._cause

    def _repeats_left(self) -> list[tuple[int, int]]:
        """The repeats that are still to begin, as numbers of trials and seeds."""
        search, repeats = self._search, [hand.row for hand in self._repeats]
        return confirming.missing(self._candidates or (), repeats, search.confirm, search.job.seed)

    def _repeat(self, again: int, seed: int, devices: tuple[str, ...]) -> None:
        """Trains a trial again with another seed. Raises OSError."""
        number = max(self._hands) + 1
        params = self._hands[again].trial.params | {"seed": seed}
        trial = Trial(search=self._search.name, number=number, params=params, seed=self._search.seed, again=again)
        job, wrong = job_with(self._search.job, params | self._own_fields(f"{again}, seed {seed}", devices))
        if job is None:
            raise ValueError(f"the settings of trial {again} are not those of a job: {wrong[0]}")
        self._create(trial, job)

    def _create(self, trial: Trial, job: Job) -> None:
        """Makes the run of a trial and starts it. Raises OSError."""
        folder = self._folder.path
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            raise OSError(f"less than 1 GiB is free on the disk of {folder}")
        run = create_run(job, partial(_note, trial=trial))
        self._start(run)
        self._hands[trial.number] = Hand(self._search, run, trial)
        self._changed = True

    def _possible(self, number: int, devices: tuple[str, ...]) -> tuple[Trial, Job] | Problem | None:
        """Settings that a job can have and no trial had, as a trial and its job; else why none was found, None where
        all had been tried.
        """
        known = [hand.known for hand in self._own]
        tried = [each.trial.params for each in known]
        wrong: Problem | None = None
        for attempt in range(TRIES):
            trial = self._study.ask(known, number, attempt)
            if trial is None:
                return None
            if trial.params in tried:
                continue
            job, found = job_with(self._search.job, trial.params | self._own_fields(str(number), devices))
            found = errors([*found, *(problems(job, self._catalogue) if job is not None else ())])
            if job is not None and not found:
                return trial, job
            wrong = found[0]
        return wrong

    def _own_fields(self, title: str, devices: tuple[str, ...]) -> dict[str, object]:
        own: dict[str, object] = {
            "name": f"{self._search.name} {title}",
            "devices": list(devices),
            "start": "when_free",
        }
        if self._search.job.cpu_threads is None and set(devices) == {CPU} and "cpu_threads" not in self._search.space:
            own["cpu_threads"] = max(1, usable_cores() // len(self._search.devices))
        return own

    def _start(self, run: RunFolder) -> None:
        """Starts a run, if possible from the process that has PyTorch in memory. Raises OSError."""
        self._warm()
        self._preloader.start_run(run)

    def _warm(self) -> None:
        """Waits until that process is ready."""
        self._preloader.start()
        deadline = time.monotonic() + READY_S
        while self._preloader.alive and not self._preloader.ready and time.monotonic() < deadline:
            select.select([self._preloader], [], [], TICK_S)
            self._preloader.poll()

    # How it stands

    def _rank(self) -> None:
        """Finds the best once another trial has ended."""
        if (now := (sum(hand.ended for hand in self._hands.values()), self._candidates)) != self._ranked:
            self._ranked = now
            known = [hand.known for hand in self._own]
            self._front, self._importance = self._study.front(known), self._study.importance(known)
            self._confirm()
            self._changed = True

    def _cleared(self) -> bool:
        """Deletes the checkpoints of ended trials that are not the best and can't become it; False where a supervisor
        that is about to end keeps some yet.
        """
        if self._search.keep_checkpoints:
            return True
        others = [hand for hand in self._hands.values() if hand.ended and hand.row.number not in self._kept]
        for hand in others:
            if not hand.cleared:
                hand.clear()
        return all(hand.cleared for hand in others)

    def _confirm(self) -> None:
        """Puts the best by its repeats in place of the best by the search, once all have ended."""
        goal, repeats = self._search.goals[0], [hand.row for hand in self._repeats]
        known = confirming.confirmed(repeats)
        self._confirmed = {number: values for number, values in known.items() if number in self._hands}
        over = self._candidates is not None and not self._repeats_left() and all(row.ended for row in repeats)
        best = confirming.winner(self._confirmed, goal) if over and self._candidates else None
        self._front = (best,) if best is not None else self._front
        self._kept = set(self._front)
        if self._search.confirm and not over:
            self._kept |= {*self._confirmed, *self._best_few()}

    def _best_few(self) -> tuple[int, ...]:
        """The trials to be confirmed, as far as they are known."""
        return confirming.candidates(self._own_rows, self._search.goals[0], self._baseline)

    @property
    def _own(self) -> list[Hand]:
        """The search's own trials, without repeats."""
        return [hand for hand in self._hands.values() if hand.trial.again is None]

    @property
    def _own_rows(self) -> list[TrialRow]:
        return [hand.row for hand in self._own]

    @property
    def _repeats(self) -> list[Hand]:
        return [hand for hand in self._hands.values() if hand.trial.again is not None]

    @property
    def _baseline(self) -> int | None:
        return confirming.baseline(self._own_rows, self._own_settings)

    def _worked_s(self) -> float:
        return self._worked_before_s + time.monotonic() - self._began

    def _confirming_s(self) -> float:
        since = time.monotonic() - self._confirming_since if self._candidates else 0.0
        return self._confirming_before_s + since

    def _save(self, ended: str = "") -> None:
        """Writes how the search stands; a disk that doesn't take it is tried again at the next change."""
        hands = [self._hands[number] for number in sorted(self._hands)]
        of = self._confirmed
        rows = tuple(msgspec.structs.replace(hand.row, confirmed=of.get(hand.row.number, ())) for hand in hands)
        total, repeats = self._total(), self._total_repeats()
        state = SearchState(
            time=time.time(),
            ended=ended,  # type: ignore[arg-type]
            trials=rows,
            best=self._front[0] if len(self._search.goals) == 1 and self._front else None,
            front=self._front,
            importance=self._importance,
            worked_s=round(self._worked_s(), 1),
            seconds_left=None if ended else self._seconds_left(repeats),
            total=total + repeats if total is not None else None,
            cause=self._cause,
            candidates=self._candidates or (),
            baseline=self._baseline,
            repeats=repeats,
            confirming_s=round(self._confirming_s(), 1),
        )
        self._saved_at, self._changed = time.monotonic(), False
        try:
            self._folder.save_state(state)
        except OSError as error:
            print(f"The state can't be written: {error}", file=sys.stderr, flush=True)
            self._changed = True

    def _seconds_left(self, repeats: int) -> float | None:
        worked, done = self._worked_s() - self._confirming_s(), self._candidates is not None
        of_repeats = [hand.row for hand in self._repeats]
        return budget.seconds_left(
            self._search, self._own_rows, of_repeats, worked_s=worked, to_repeat=repeats, done=done
        )

    def _total(self) -> int | None:
        """How many trials of its own the search will have, as far as that is known."""
        known = self._candidates is not None or self._exhausted
        return len(self._own) if known else self._search.budget.trials

    def _total_repeats(self) -> int:
        """How many repeats there will be; at most where the candidates are not known yet."""
        if self._candidates is not None:
            return len(self._repeats) + len(self._repeats_left())
        most = CONFIRMED + (self._own_settings is not None)
        return len(self._repeats) + self._search.confirm * min(most, self._search.budget.trials or most)


def _slots(search: Search) -> list[tuple[str, ...]]:
    """The groups of devices on which trials run at once."""
    size = search.devices_per_trial
    return [search.devices[at : at + size] for at in range(0, len(search.devices), size)]


def _note(run: RunFolder, trial: Trial) -> None:
    change_notes(run.path, tags=(tag_of(trial.search),))
    save_trial(run, trial)
