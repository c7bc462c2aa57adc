"""Stopwatches that measure the durations of the parts of training steps."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from engine.contract.events import Part, RanksTimed, ScheduleTraced

TimedPart = Part | Literal["passes"]
"""Part of a step that a mark ends, or "passes" for all passes of a pipeline's schedule together."""

SAMPLES_PER_S = 20.0
"""Maximum number of timed steps per second on a GPU, low enough to cost nothing and high enough for stable results."""


class _Mark(NamedTuple):
    """CUDA event that marks the end of a part of a step on a GPU."""

    part: TimedPart
    event: torch.cuda.Event


@dataclass(frozen=True, slots=True)
class Times:
    """Mean duration of a step and of each of its parts in seconds, over `steps` steps.

    The durations of the parts add up to `step_s`. `starved_fraction` is the fraction of steps that began after the
    device had run out of work, because the batch was late. It is None on the CPU, and if no step was timed.
    """

    steps: int
    step_s: float
    parts: dict[Part, float]
    starved_fraction: float | None = None


class Stopwatch:
    """Stopwatch for CPU workers, which times every step.

    `mark(part)` assigns the time since the last mark to `part`. It does nothing while the stopwatch is paused.
    """

    def __init__(self) -> None:
        self.running = False
        # Fractions that `learn_fractions` has estimated: of communication in each part, and of each part in "passes".
        self._communication: dict[TimedPart, float] = {}
        self._passes: dict[Part, float] = {}
        # Seconds by part, and number of steps, since the last `take`.
        self._spent: dict[TimedPart, float] = {}
        self._steps = 0
        self._last_mark = 0.0  # time of the last mark
        self._reset()

    def start(self) -> None:
        """Reset all measurements and start."""
        self._reset()
        self.resume()

    def resume(self) -> None:
        """Resume timing after a pause. Earlier measurements are retained."""
        self.running = True
        self._last_mark = time.perf_counter()

    def pause(self) -> None:
        """Pause the measurement. The time until `resume` does not count."""
        self.running = False

    def skip(self) -> None:
        """Exclude the step that starts now from the measurement.

        It is called before steps that the profiler records, because recording slows them.
        """

    def mark(self, part: TimedPart) -> None:
        """Assign the time since the last mark to `part`."""
        if self.running:
            now = time.perf_counter()
            self._spent[part] = self._spent.get(part, 0.0) + now - self._last_mark
            self._last_mark = now

    def end_step(self) -> None:
        """End a step and start the next one. The time since the last mark is assigned to the part "logging"."""
        if self.running:
            self.mark("logging")
            self._steps += 1

    def learn_fractions(self, step: RanksTimed | ScheduleTraced, reducing_parts: tuple[Part, ...]) -> None:
        """Estimate from a recorded step which fraction of its time rank 0 spends on communication and waiting.

        Later calls of `take` split the measured times by this fraction. Under a data-parallel strategy, ranks
        communicate during the parts in `reducing_parts`. For a pipeline, the idle time between passes counts as
        communication.
        """
        if isinstance(step, RanksTimed):
            local = step.ranks[0]
            blocked_s = local.communication_s + local.waiting_s
            self._communication = (
                dict.fromkeys(reducing_parts, blocked_s / (blocked_s + local.compute_s)) if blocked_s else {}
            )
        elif step.span_s > 0:
            durations = dict.fromkeys("FBIW", 0.0)  # by kind of pass, see `Action`
            for action in step.ranks[0]:
                durations[action.kind] += action.end_s - action.begin_s
            forward = durations["F"] / step.span_s
            backward = (sum(durations.values()) - durations["F"]) / step.span_s
            idle = max(0.0, 1.0 - forward - backward)
            self._passes = {"forward": forward, "backward": backward, "communication": idle}

    def take(self) -> Times | None:
        """Return the mean times since the last call and reset the measurement. Return None if there were no steps."""
        if not self._steps:
            return None
        steps = self._steps
        mean_s = {part: seconds / steps for part, seconds in self._spent.items()}
        self._spent, self._steps = {}, 0
        return Times(steps, sum(mean_s.values()), self._divide_into_parts(mean_s))

    def _reset(self) -> None:
        self._spent, self._steps = {}, 0

    def _divide_into_parts(self, spent: Mapping[TimedPart, float]) -> dict[Part, float]:
        """Divide the seconds of each timed part, `spent`, into computation and communication.

        Communication is a separate part of the result. Its fraction of each part is the one that `learn_fractions` has
        estimated.
        """
        parts: dict[Part, float] = {}

        def add(part: Part, seconds: float) -> None:
            parts[part] = parts.get(part, 0.0) + seconds

        training_s = sum(spent.get(part, 0.0) for part in ("forward", "backward", "optimizer"))
        reducing_s = sum(spent.get(part, 0.0) for part in self._communication)
        for part, seconds in spent.items():
            if part == "passes":
                for pass_part, fraction in (self._passes or {"other": 1.0}).items():  # unknown before a recorded step
                    add(pass_part, fraction * seconds)
                continue
            # The fraction refers to forward, backward and optimizer together, but its time is in the reducing parts. If
            # it would exceed them, it is applied to the part alone.
            fraction = self._communication.get(part, 0.0)
            communication_s = fraction * seconds
            if fraction * training_s < reducing_s:
                communication_s *= training_s / reducing_s
            add(part, seconds - communication_s)
            if communication_s:
                add("communication", communication_s)
        return parts


class DeviceStopwatch(Stopwatch):
    """Stopwatch for GPU workers, which records events in the stream and reads them later.

    Only some steps are timed. Their events are read once the device has passed them. The time between two events
    includes both computing and idle time. If a batch is late or the host queues work too slowly, the device is idle,
    and this part of the step becomes longer. Steps are chosen at random, so that periodic effects are sampled in
    proportion.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._random = random.Random(0)  # chooses the steps that are timed on the device
        self._reusable_events: list[torch.cuda.Event] = []

    def _reset(self) -> None:
        """Discard all measurements, and forget the current step."""
        super()._reset()
        # `_is_sampling`: the current step is timed on the device. `_is_skipping`: it counts in no measurement.
        self._is_sampling = self._is_skipping = False
        self._seconds = 0.0  # running time since the last `take`, without the time since `_resumed_at`
        self._marks: list[_Mark] = []  # of the current step, if it is timed
        self._sampled: list[list[_Mark]] = []  # of earlier timed steps whose events were not read yet
        self._optimizer_end: torch.cuda.Event | None = None
        """Event at the end of the last timed step's optimizer, until the next batch has arrived."""
        self._starved: list[bool] = []
        """For each timed step: whether the device had run out of work before the next batch arrived."""

    def resume(self) -> None:
        """Resume timing after a pause, and begin a step."""
        super().resume()
        self._resumed_at = time.perf_counter()
        self._begin()

    def pause(self) -> None:
        """Pause the measurement, and drop the marks of the current step."""
        if self.running:
            self._seconds += time.perf_counter() - self._resumed_at
        super().pause()
        self._is_sampling = self._is_skipping = False
        self._optimizer_end = None

    def skip(self) -> None:
        """Exclude the step that starts now from the measurement, which resumes at its end."""
        self.pause()  # since recording synchronizes with the device
        self._is_skipping = True

    def mark(self, part: TimedPart) -> None:
        """Record an event at the end of `part`. After the part "data", note if the device was already idle."""
        if self._optimizer_end is not None and part == "data":
            self._starved.append(self._optimizer_end.query())
            self._optimizer_end = None
        if self._is_sampling:
            self._marks.append(_Mark(part, self._record_event()))

    def end_step(self) -> None:
        """End a step, and begin the next one. At the end of a skipped step, the measurement resumes."""
        if not self.running:
            if self._is_skipping:
                self.resume()
            return
        self._steps += 1
        if self._is_sampling:
            self.mark("logging")
            self._sampled.append(self._marks)
            optimizer_ends = [mark.event for mark in self._marks if mark.part == "optimizer"]
            self._optimizer_end = optimizer_ends[-1] if optimizer_ends else None
        self._begin()

    def _begin(self) -> None:
        """Begin a step, and decide at random whether it is timed."""
        self._is_sampling = True
        if self._steps:
            mean_step_s = (self._seconds + time.perf_counter() - self._resumed_at) / self._steps
            self._is_sampling = self._random.random() < SAMPLES_PER_S * mean_step_s
        # The first event only marks the start, so its name does not matter.
        self._marks = [_Mark("logging", self._record_event())] if self._is_sampling else []

    def _record_event(self) -> torch.cuda.Event:
        """Record an event at the end of the device's queued work, and return it."""
        event = self._reusable_events.pop() if self._reusable_events else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def take(self) -> Times | None:
        """Return the mean times since the last call and reset the measurement.

        Returns None if no step has been timed. Only some steps are timed on the device. The times of their parts are
        scaled to the mean time of all steps.
        """
        completed = [marks for marks in self._sampled if marks[-1].event.query()]  # steps whose last event has occurred
        if not completed or not self._steps:
            return None
        self._sampled = self._sampled[len(completed) :]  # a stream reaches events in order
        spent: dict[TimedPart, float] = {}
        for marks in completed:
            for (_, begin), (part, end) in itertools.pairwise(marks):
                spent[part] = spent.get(part, 0.0) + begin.elapsed_time(end) / 1e3
            self._reusable_events += [mark.event for mark in marks if mark.event is not self._optimizer_end]
        now = time.perf_counter()
        steps, seconds = self._steps, self._seconds + (now - self._resumed_at if self.running else 0.0)
        self._steps, self._seconds, self._resumed_at = 0, 0.0, now
        starved, self._starved = self._starved, []
        step_s, measured_s = seconds / steps, sum(spent.values())
        scale = step_s / measured_s if measured_s else 0.0
        parts = self._divide_into_parts({part: scale * part_s for part, part_s in spent.items()})
        return Times(steps, step_s, parts, sum(starved) / len(starved) if starved else None)


def create_stopwatch(device: torch.device) -> Stopwatch:
    """Create a stopwatch for a worker on `device`."""
    return DeviceStopwatch(device) if device.type == "cuda" else Stopwatch()
