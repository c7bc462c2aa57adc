"""Callback that reports how much time the parts of steps take, and what limits the speed."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import torch

from engine.checks.findings.bottleneck import RunProfile, find_bottleneck
from engine.contract.events import Event, Part, RanksTimed, ScheduleTraced, TimeSpent
from engine.strategies.base import NATIVE_BF16, StepResult, Strategy
from engine.strategies.stopwatch import Times
from engine.system import linux
from engine.training.callbacks.callback import Callback, StepEnd
from engine.training.split_loader import SplitLoader

EMIT_S = 1.0
"""Minimum seconds between two reports of how long the parts of steps take."""
NEWEST = 0.5
"""Weight of the newest measurement in the moving averages. Advice is based on the averages to keep it stable."""


class StepProfile(Callback):
    """Callback that runs the strategy's profiler and reports the times of the parts of steps.

    Rank 0 reports them at most every `EMIT_S` seconds. The first step of this execution, `first_step`, does not count,
    because it includes one-time work.
    """

    def __init__(
        self,
        strategy: Strategy,
        split_loader: SplitLoader,
        emit: Callable[[Event], None],
        *,
        first_epoch: int,
        first_step: int,
    ) -> None:
        self._strategy = strategy
        self._profiler, self._watch = strategy.profiler, strategy.profiler.watch
        self._split_loader = split_loader
        self._emit = emit
        self._first_epoch = first_epoch
        self._first_step = first_step
        self._started = False  # True after the first step, whose time does not count
        self._record = False  # True to record the times of the next step on all ranks
        self._has_emitted = False
        self._emitted_at = time.monotonic()
        # Seconds spent on decoding and on waiting for a core until the last report.
        self._decoded_s = split_loader.decoding_s
        self._waited_for_core_s = linux.read_core_wait_s()
        self._fractions: dict[Part, float] = {}  # moving average of each part's fraction of a step
        self._ranks: RanksTimed | None = None  # times of all ranks in the last recorded step
        self._last_straggler: int | None = None  # slowest rank in that step, or None
        self._trace: ScheduleTraced | None = None  # passes of a pipeline in the last recorded step

    def on_steps_start(self) -> None:
        if self._started:
            self._watch.resume()

    def on_step_start(self) -> None:
        self._profiler.begin(record=self._record)

    def on_step_submitted(self, step: int, result: StepResult | None, wait_s: float) -> None:
        """Report the times of all ranks if the step was recorded. All ranks call it together."""
        event = self._profiler.end(step, self._strategy.collectives)
        if event is not None:
            self._emit(event)
            self.store(event)

    def on_step_end(self, end: StepEnd) -> None:
        """Report the times of steps if this step is reported. The first step only starts the measurement."""
        self._record = end.record
        if end.step == self._first_step:
            self._watch.start()
            self._started = True
            return
        self._watch.end_step()
        if end.report and self._strategy.spec.rank == 0:
            self.emit(end)

    def on_steps_end(self) -> None:
        self._watch.pause()

    def store(self, event: RanksTimed | ScheduleTraced) -> None:
        """Store the times of a recorded step, on which the advice in later reports is based.

        `event` has the times of all ranks or, for a pipeline, those of all passes. A straggler is only stored if the
        previous event with the times of all ranks had the same one.
        """
        if isinstance(event, RanksTimed):
            is_confirmed = event.straggler == self._last_straggler
            self._last_straggler = event.straggler
            self._ranks = event if is_confirmed else msgspec.structs.replace(event, straggler=None)
        else:
            self._trace = event

    def emit(self, end: StepEnd) -> None:
        """Report the times since the last report if `EMIT_S` have passed.

        In the first epoch, the first report comes at the end of the epoch at the latest.
        """
        now = time.monotonic()
        if now - self._emitted_at < EMIT_S and (self._has_emitted or not end.last):
            return
        times = self._watch.take()
        if times is None:
            return
        since_s = now - self._emitted_at
        self._has_emitted, self._emitted_at = True, now
        advice = find_bottleneck(self._create_run_profile(times, end.epoch - self._first_epoch, since_s))
        self._emit(TimeSpent(step=end.step, step_s=times.step_s, parts=times.parts, advice=advice))

    def _create_run_profile(self, times: Times, epochs_before: int, since_s: float) -> RunProfile:
        """Create the run profile, on which advice is based, from `times` and other measurements.

        `since_s` is the time since the last report in seconds, and `epochs_before` the number of epochs that this
        execution has completed. Each call updates the moving averages, and begins a new measurement of the time for
        decoding and of the time without a core.
        """
        strategy = self._strategy
        on_gpu = strategy.device.type == "cuda"
        threads = 1 if on_gpu else torch.get_num_threads()
        decoded_before_s, self._decoded_s = self._decoded_s, self._split_loader.decoding_s
        waited_before_s, self._waited_for_core_s = self._waited_for_core_s, linux.read_core_wait_s()
        newest = {part: seconds / times.step_s for part, seconds in times.parts.items()} if times.step_s else {}
        # A running average, so that advice does not follow single slow steps.
        old = self._fractions or newest
        self._fractions = {
            part: NEWEST * newest.get(part, 0.0) + (1 - NEWEST) * old.get(part, 0.0) for part in {**old, **newest}
        }
        return RunProfile(
            job=strategy.job,
            step_s=times.step_s,
            parts={part: fraction * times.step_s for part, fraction in self._fractions.items()},
            on_gpu=on_gpu,
            native_bf16=on_gpu and torch.cuda.get_device_capability(strategy.device) >= NATIVE_BF16,
            readers=self._split_loader.threads,
            decoding_s=(self._decoded_s - decoded_before_s) / times.steps,
            # The supervisor has divided the cores among the workers.
            spare_cores=strategy.spec.threads - threads,
            computing_threads=threads,
            cpu_wait_fraction=(self._waited_for_core_s - waited_before_s) / since_s,
            epochs_before=epochs_before,
            starved_fraction=times.starved_fraction,
            microbatches=strategy.layout.microbatches,
            ranks=self._ranks,
            trace=self._trace,
        )
