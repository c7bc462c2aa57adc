"""Advisor that estimates all setups of a job, and tries the promising ones in rounds until the fastest is known.

Base setups differ in strategy and devices, and a variant of one changes further settings. A setup is called a contender
once it waits for trials. At the end, a rehearsal trains and validates with the fastest contender as in a run, so that
the time for the complete job can be predicted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from engine.advisor.advice.answer import CachedAdvice, adapt_cached, create_answer, load_cached, save_cached
from engine.advisor.advice.contenders import DROP_FACTOR, Contender, drop_slow, is_ranking_certain, rank
from engine.advisor.advice.estimates import ESTIMATE_MARGIN, calibrate, estimate_bytes, estimate_min_step_s
from engine.advisor.advice.setups import Setup, list_setups, list_smaller_setups
from engine.advisor.advice.state import AdviceState
from engine.advisor.advice.trial_files import Footprint, TrialRequest
from engine.advisor.advice.trials import measure_footprint, rehearse, try_setup
from engine.advisor.batch_finder import is_out_of_memory
from engine.advisor.workers import TrialFolder, import_for
from engine.contract.advice import Advice, AdviceProgress, AdviceRequest
from engine.contract.catalogue import MeshDimension, StrategyEntry, load_catalogue
from engine.contract.events import Failed
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.processes.requests import RequestError

MIN_STEPS, MIN_SECONDS = 5, 0.4
"""Number of steps and duration in seconds of the trials in the first round. Each later round doubles both."""
MAX_ROUNDS = 5
REHEARSAL_SHARE = 0.2
"""Fraction of the time that is reserved for the rehearsal: a short run of the fastest setup, with a validation."""
REHEARSAL_DIVISOR = 7
"""Divisor of the remaining time, which gives the time limit of a phase of the rehearsal.

There are four phases: steps with new images, steps with decoded images, and two validations. The other three sevenths are
for the start of the workers, for the steps before the first phase, and for saving the state.
"""
MIN_PHASE_S, MAX_PHASE_S = 0.5, 5.0
"""Minimum and maximum time limit of a phase of the rehearsal, in seconds.

A shorter phase contains too few steps, and a longer one is hardly more accurate.
"""
MIN_TRIAL_S = 1.0
"""Minimum time in seconds for a trial on one device. With less time, its workers could not start."""
DEFAULT_TRIAL_S = 6.0
"""Expected duration of a trial before the first trial, in seconds."""
OPTIMISM = 0.8
"""Shortest plausible step time of an untried setup, as a fraction of its predicted step time.

The prediction is scaled by a measured setup with the same strategy and number of devices.
"""
VARY_WITHIN = 1.15
"""Maximum step time of a setup for trying its variants, as a multiple of the fastest setup's step time."""
SUPERLINEAR = 1.1
"""Maximum plausible speedup per device. Above it, the measurement on one device is repeated."""
TOO_LARGE = "By the estimate they need more memory than a device has."
SLOWER_AT_BEST = "What their parts cost makes them slower than the fastest, at best."
VARIES_SLOWER = "They vary a setting of a setup that is slower than others, or was not tried."

_Send = Callable[[AdviceProgress], object]


def advise(request: AdviceRequest, send: _Send) -> Advice:
    """Find the fastest setup for the requested job, from the cache or by trials, and report the progress by `send`.

    Ctrl+C (KeyboardInterrupt) stops the trials. The answer is then based on the measurements made until then. Raises
    RequestError if the job can't be built.
    """
    job = request.job.with_fields(strategy=request.job.resolved_strategy)
    request = msgspec.structs.replace(request, job=job)
    cached = None if request.remeasure else load_cached(request)
    if cached is not None:
        return adapt_cached(request, cached)
    started, advisor = time.monotonic(), _Advisor(request, send)
    try:
        advisor.run()
    except KeyboardInterrupt:
        advisor.state.record_stop()
    advisor.state.took_s = time.monotonic() - started
    result = create_answer(advisor.state)
    if result.ended_by != "stopped" and result.fits:
        save_cached(request, CachedAdvice(result, request.seconds, advisor.state.machine_step))
    return result


class _Advisor:
    """Work of the advisor on a single request for the fastest setup of a job."""

    def __init__(self, request: AdviceRequest, send: _Send) -> None:
        self._request, self._send = request, send
        self._catalogue = load_catalogue()
        self._started = time.monotonic()
        self.state = AdviceState(request, self._catalogue)

    @property
    def _remaining_s(self) -> float:
        """Seconds that are left of the time for all trials, or a negative number once that time is over."""
        return self._started + self._request.seconds - time.monotonic()

    @property
    def _remaining_trial_s(self) -> float:
        """Maximum time in seconds for the next trial.

        A trial that takes longer than expected may use half of the time that is reserved for the rehearsal.
        """
        return self._remaining_s - REHEARSAL_SHARE / 2 * self._request.seconds

    def run(self) -> None:
        """Estimate all setups, try the promising ones, and time a short run with the fastest.

        The results are stored in `state`. Raises RequestError if the job's model or data can't be loaded.
        """
        state, job = self.state, self._request.job
        self._report("Loading PyTorch")
        before = time.monotonic()
        mesh: tuple[MeshDimension, ...] = ("replicate",) if len(job.parallel.devices) > 1 else ()
        import_for(job.with_fields(strategy=self._catalogue.recommended_strategy(*mesh).id))
        state.import_s = time.monotonic() - before
        with TrialFolder() as folder_name:
            folder = Path(folder_name)
            self._report("Estimating memory")
            footprint = measure_footprint(job, folder, self._remaining_s)
            # An out-of-memory error leaves the estimates out: the trials show which setups fit.
            if isinstance(footprint, Failed) and not is_out_of_memory(footprint):
                raise RequestError(Problem("", footprint.cause, "Correct the job, then ask again."))
            state.footprint = footprint if isinstance(footprint, Footprint) else None
            if state.footprint is not None and state.footprint.activations is not None:
                state.memory_by = "fake_tensors"
            self._queue_setups(list_setups(job, self._catalogue))
            self._try_all(folder)
            fastest = next(iter(rank(state.contenders)), None)
            if fastest is not None and fastest.steps:  # measured
                self._rehearse(fastest, folder)

    def _queue_setups(self, setups: list[Setup]) -> None:
        """Queue those of `setups` that can run for trials, and record why the others are left out."""
        self.state.considered += len(setups)
        for setup in setups:
            if setup.refusal:
                self.state.leave_out("rules", setup, setup.refusal)
            else:
                self._queue_setup(setup)

    def _queue_setup(self, setup: Setup) -> None:
        """Queue a setup that fits in memory. Otherwise, leave it out, and queue a variant of it that needs less.

        A setup that is a variant itself is only left out.
        """
        state, contender = self.state, Contender(setup, estimated=self._estimate(setup.job))
        if self._fits(contender):
            state.queue.append(contender)
            return
        state.leave_out("memory", setup, TOO_LARGE)
        smaller = None if setup.is_variant else next(self._list_fitting_variants(setup), None)
        if smaller is not None and smaller.setup.job not in {each.setup.job for each in state.queue}:
            state.considered += 1
            state.queue.append(smaller)

    def _list_fitting_variants(self, setup: Setup) -> Iterator[Contender]:
        """Yield variants of `setup` that need less memory and fit, according to their estimates.

        The variants that are expected to be the fastest come first.
        """
        footprint = self.state.footprint
        for smaller in list_smaller_setups(setup, self._request.job, self._catalogue):
            contender = Contender(smaller, estimated=self._estimate(smaller.job))
            # Activation checkpointing has no estimate, and no effect, if the model has no blocks.
            can_estimate = footprint is not None and footprint.activations is not None
            has_no_blocks = can_estimate and contender.estimated is None
            if self._fits(contender, margin=1 / ESTIMATE_MARGIN) and not has_no_blocks:
                yield contender

    def _estimate(self, job: Job) -> int | None:
        """Estimate the peak memory of a device or CPU worker in bytes. Return None if it can't be estimated."""
        state = self.state
        if state.footprint is None:
            return None
        return estimate_bytes(job, self._get_strategy(job), state.footprint, state.calibration)

    def _fits(self, contender: Contender, margin: float = ESTIMATE_MARGIN) -> bool:
        """Return True if the estimate is at most `margin` times the smallest device's memory, or if it is unknown."""
        footprint = self.state.footprint
        return footprint is None or contender.estimated is None or contender.estimated <= margin * min(footprint.limits)

    # Rounds

    def _try_all(self, folder: Path) -> None:
        """Run rounds of trials. Each round has twice as many steps per trial as the previous one.

        Sets `state.ended_by` to "settled" unless the time runs out or no contender can be measured.
        """
        state = self.state
        self._try_one_device(folder)
        for round_index in range(MAX_ROUNDS):
            is_complete = self._try_round(round_index, folder)
            running = [each for each in state.contenders if each.state == "measured"]
            if not running:
                return
            remaining = drop_slow(running)  # marks the slow ones
            if not is_complete:
                return
            if not state.queue and is_ranking_certain(remaining):
                break
        state.ended_by = "settled"

    def _try_round(self, round_index: int, folder: Path) -> bool:
        """Try each contender of a round. Return False if time ran out before the end of the round.

        Untried contenders that can't be the fastest are left out.
        """
        queue = self._select_contenders(round_index)
        while queue:
            contender = queue.pop(0)
            if not contender.trials and not self._may_be_fastest(contender):
                self.state.leave_out("cost", contender.setup, SLOWER_AT_BEST)
                continue
            if not self._has_time(contender, round_index):
                # Contenders with earlier trials are already among the state's contenders.
                self.state.queue += [each for each in (contender, *queue) if not each.trials]
                return False
            self._run_trial(contender, round_index, folder, len(queue))
            if round_index == 0 and contender.state == "too_large":  # try a smaller variant next
                queue[:0] = self._find_replacement(contender)
        return True

    def _select_contenders(self, round_index: int) -> list[Contender]:
        """Select the contenders for the round `round_index`, counted from 0.

        The first round has all base setups, the most promising first, and `state.queue` keeps their variants. Later
        rounds have the contenders that were not dropped, and the queued variants of the fastest contenders. The other
        variants are recorded as left out, which empties the queue. If the trial on one device seems to have been
        delayed, it is repeated.
        """
        state = self.state
        queued, state.queue = state.queue, []
        if round_index == 0:
            state.queue = [each for each in queued if each.setup.is_variant]
            return sorted((each for each in queued if not each.setup.is_variant), key=self._estimate_min_step_s)
        measured = [each for each in state.contenders if each.state == "measured"]
        bases = [each for each in measured if not each.setup.is_variant]
        min_step_s = min((each.step_s for each in bases), default=0.0)
        fastest_names = {each.setup.name for each in bases if each.step_s <= VARY_WITHIN * min_step_s}
        promising_variants = []
        for variant in queued:
            if variant.setup.base_name in fastest_names:
                promising_variants.append(variant)
            else:
                state.leave_out("cost", variant.setup, VARIES_SLOWER)
        return [*promising_variants, *measured, *self._find_one_device_repeat()]

    def _find_one_device_repeat(self) -> list[Contender]:
        """Return the contender on one device, as a list, if its only trial seems to have been delayed, otherwise [].

        It seems so if the speed per device of the fastest contender is more than `SUPERLINEAR` times the speed on one
        device. A contender that was tried more than once, or will be tried again anyway, is not returned.
        """
        alone, best = self.state.fastest_on_one_device, rank(self.state.contenders)[0]
        # Measured contenders are tried again anyway.
        if alone is None or alone.trials > 1 or alone.state == "measured":
            return []
        plausible = SUPERLINEAR * len(best.setup.job.parallel.devices) * alone.speed.median
        return [alone] if best.speed.median > plausible else []

    def _try_one_device(self, folder: Path) -> None:
        """Measure a step on one device. The predictions for other setups are based on it.

        For these predictions, a step with a quarter of the batch is timed, too. If the setup does not fit in memory, a
        variant that needs less is tried instead.
        """
        state = self.state
        singles = [
            each for each in state.queue if not each.setup.is_variant and len(each.setup.job.parallel.devices) == 1
        ]
        while singles and self._remaining_trial_s > MIN_TRIAL_S:
            contender = singles.pop(0)
            state.queue.remove(contender)
            self._run_trial(
                contender, round_index=0, folder=folder, trials_left=len(state.queue), time_quarter_batch=True
            )
            if contender.steps:
                self._calibrate(contender)
                return
            if contender.state == "too_large":
                singles = self._find_replacement(contender)
                state.queue[:0] = singles

    def _calibrate(self, alone: Contender) -> None:
        """Calibrate the memory estimates with the trial of the contender `alone` on one device.

        The memory of the queued contenders is estimated again. Those that don't fit any more are left out, or replaced
        by variants that need less.
        """
        state = self.state
        job = alone.setup.job
        if state.footprint is None or alone.memory is None:
            return
        peak_bytes, _limit_bytes = alone.memory
        state.calibration = calibrate(peak_bytes, job, self._get_strategy(job), state.footprint)
        state.memory_by = "one_device"
        queued, state.queue = state.queue, []
        for contender in queued:  # none of them has been tried yet
            self._queue_setup(contender.setup)

    def _find_replacement(self, failed: Contender) -> list[Contender]:
        """Choose a contender to try instead of `failed`, which ran out of memory despite its estimate.

        The variants of `failed` that were not tried yet are considered in order. The first one is chosen whose estimate
        is unknown, or lower than that of `failed` by the factor `ESTIMATE_MARGIN`. If all estimates are too similar and
        no contender has fitted in memory yet, the second variant is chosen, or the only one.

        Returns a list with the chosen contender, which is counted in `state.considered`, or [].
        """
        state = self.state
        known_jobs = {each.setup.job for each in (*state.contenders, *state.queue)}
        variants = [each for each in self._list_fitting_variants(failed.setup) if each.setup.job not in known_jobs]

        def is_clearly_smaller(variant: Contender) -> bool:
            if variant.estimated is None or failed.estimated is None:
                return True
            return ESTIMATE_MARGIN * variant.estimated <= failed.estimated

        suitable = list(filter(is_clearly_smaller, variants))
        if not suitable and not any(each.steps for each in state.contenders):
            # The first variant needs nearly as much memory as `failed`, so a trial of it would probably fail, too.
            suitable = variants[1:] or variants
        replacement = suitable[:1]
        state.considered += len(replacement)
        return replacement

    # Trials

    def _run_trial(
        self,
        contender: Contender,
        round_index: int,
        folder: Path,
        trials_left: int,
        *,
        time_quarter_batch: bool = False,
    ) -> None:
        """Run a trial of a contender in round `round_index`, counted from 0, and report the progress.

        The trial takes at most the remaining time. After it, `trials_left` trials remain in the round. If
        `time_quarter_batch` is True, steps with a quarter of the batch are timed, too.
        """
        state, job = self.state, contender.setup.job
        if contender not in state.contenders:
            state.contenders.append(contender)
        fastest_s = min(each.step_s for each in state.contenders)  # infinite before the first measurement
        has_unmeasured_link = len(job.parallel.devices) > 1 and state.link is None
        request = TrialRequest(
            min_steps=MIN_STEPS * 2**round_index,
            seconds=MIN_SECONDS * 2**round_index,
            # Without a measured step to compare with, slower steps would leave too little time for other trials.
            give_up_s=DROP_FACTOR * fastest_s if fastest_s < float("inf") else self._remaining_s / 4,
            times_smaller=time_quarter_batch,
            times_link=has_unmeasured_link and self._get_strategy(job).process_per_device,
        )
        contender.why = ""
        self._report(f"Trying {contender.setup.name}", trials_left, trying=contender)
        try_setup(contender, request, folder, self._remaining_trial_s)
        if contender.measured is not None and contender.measured.link is not None:
            state.link = contender.measured.link
        self._report(f"Tried {contender.setup.name}", trials_left)

    def _may_be_fastest(self, contender: Contender) -> bool:
        """Return True if a lower bound for the contender's step time does not exceed the fastest measured step.

        For a base setup, the bound is raised if all measured setups with the same strategy and number of devices were
        slower than their own bounds. The result is always True with bf16, for which the computing time is not predicted.
        """
        job = contender.setup.job
        if job.precision.name == "bf16":
            return True
        measured = [each for each in self.state.contenders if each.steps]
        fastest_s = min((each.step_s for each in measured), default=float("inf"))
        bound_s = self._estimate_min_step_s(contender)
        siblings = [
            each
            for each in measured
            if each.setup.job.resolved_strategy == job.resolved_strategy
            and len(each.setup.job.parallel.devices) == len(job.parallel.devices)
        ]
        if siblings and not contender.setup.is_variant:
            ratios = [each.step_s / max(1e-9, self._estimate_min_step_s(each)) for each in siblings]
            bound_s = max(bound_s, OPTIMISM * min(ratios) * bound_s)
        return bound_s <= fastest_s

    def _estimate_min_step_s(self, contender: Contender) -> float:
        """Return a lower bound for the duration of a step in seconds, or 0 if no step on one device was measured."""
        costs, job = self.state.costs, contender.setup.job
        return 0.0 if costs is None else estimate_min_step_s(job, self._get_strategy(job), costs)

    def _has_time(self, contender: Contender, round_index: int) -> bool:
        """Return True if a trial in round `round_index` is expected to end before the time reserved for the rehearsal."""
        durations_s = [each.wall_s for each in self.state.contenders if each.wall_s]
        mean_s = sum(durations_s) / len(durations_s) if durations_s else DEFAULT_TRIAL_S
        # The steps of the contender's last trial took half of the time that those of this round will take.
        added_s = MIN_SECONDS * 2**round_index / 2
        expected_s = (contender.wall_s or mean_s) + added_s
        return expected_s < self._remaining_s - REHEARSAL_SHARE * self._request.seconds

    def _rehearse(self, best: Contender, folder: Path) -> None:
        """Train and validate briefly with the contender `best` in the remaining time. Store the durations in `state`."""
        self._report(f"Rehearsing {best.setup.name}", trying=best)
        phase_s = max(MIN_PHASE_S, min(MAX_PHASE_S, self._remaining_s / REHEARSAL_DIVISOR))
        result = rehearse(best, phase_s, folder, max(1.0, self._remaining_s))
        if result is not None:
            self.state.rehearsal, self.state.startup_s = result
            self.state.rehearsed = best

    def _get_strategy(self, job: Job) -> StrategyEntry:
        """Return the catalogue entry of the job's strategy, which the catalogue must list."""
        entry = self._catalogue.strategy(job.resolved_strategy)
        assert entry is not None
        return entry

    def _report(self, activity: str, contenders_left: int = 0, trying: Contender | None = None) -> None:
        """Send the progress and the table of contenders. `activity` describes to the user what happens now.

        `contenders_left` contenders still wait for a trial in this round. `trying` is the contender in a trial.
        """
        state = self.state
        table = []
        for contender in (*rank(state.contenders), *state.queue):
            row = state.create_row(contender)
            if contender is trying:
                row = msgspec.structs.replace(row, state="trying")
            table.append(row)
        remaining_s = max(0.0, self._remaining_s)
        progress = AdviceProgress(
            fraction=min(1.0, 1 - remaining_s / self._request.seconds),
            what=activity,
            seconds_left=remaining_s,
            considered=state.considered,
            left=contenders_left,
            table=tuple(table),
        )
        self._send(progress)
