"""Where the time of the steps goes: each step is divided among its parts by marks that are put as it goes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from engine.contract.events import Part, RanksTimed, ScheduleTraced

Marked = Part | Literal["passes"]
"""The names of marks: a part, or the forward and backward passes of a pipeline's schedule together, which only a
traced step separates."""

SAMPLES_PER_S = 20.0
"""The most steps per second that are timed on a GPU: few enough to cost nothing, and enough for steady figures each
second."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per step of `steps` steps, and what they went into; the parts together are `step_s`.

    `starved` is the share of the steps whose work the device had done when the next batch was there; None on the CPU,
    and where no step was looked into.
    """

    steps: int
    step_s: float
    parts: dict[Part, float]
    starved: float | None = None


class Stopwatch:
    """For workers on the CPU: by the clock, every step. It costs some readings of the clock a step.

    `mark(part)` says that what was done since the last mark belongs to `part`, and does nothing before `resume`. The
    loop marks what it does itself, the strategy its passes and its optimizer's step.
    """

    def __init__(self) -> None:
        self.running = False
        self._communication: dict[Marked, float] = {}
        self._passes: dict[Part, float] = {}
        self._spent: dict[Marked, float] = {}
        self._steps = 0
        self._last = 0.0
        self._forget()

    def start(self) -> None:
        """Begins anew, with nothing measured, and runs."""
        self._forget()
        self.resume()

    def resume(self) -> None:
        """Goes on after a pause; what was measured before it is kept."""
        self.running = True
        self._last = time.perf_counter()

    def pause(self) -> None:
        """What comes now belongs to no step."""
        self.running = False

    def skip(self) -> None:
        """The step that begins here is made differently, to look into it; called where a step begins."""

    def mark(self, part: Marked) -> None:
        if self.running:
            now = time.perf_counter()
            self._spent[part] = self._spent.get(part, 0.0) + now - self._last
            self._last = now

    def step_done(self) -> None:
        """A step ends here, and the next begins; what was done since the last mark was telling of it."""
        if self.running:
            self.mark("logging")
            self._steps += 1

    def learn(self, step: RanksTimed | ScheduleTraced, joined_in: tuple[Part, ...]) -> None:
        """Takes from a step that was looked into on all ranks how much of rank 0's passes was none of its computing.

        Ranks of a data-parallel strategy stand still in the parts `joined_in`; a pipeline's also wait in between.
        """
        if isinstance(step, RanksTimed):
            own = step.ranks[0]
            still = own.communication_s + own.waiting_s
            self._communication = dict.fromkeys(joined_in, still / (still + own.compute_s)) if still else {}
        elif step.span_s > 0:
            lasted = dict.fromkeys("FBIW", 0.0)
            for action in step.ranks[0]:
                lasted[action.kind] += action.end_s - action.begin_s
            forward, backward = lasted["F"] / step.span_s, (sum(lasted.values()) - lasted["F"]) / step.span_s
            idle = max(0.0, 1.0 - forward - backward)
            self._passes = {"forward": forward, "backward": backward, "communication": idle}

    def take(self) -> Times | None:
        """The steps since it was last taken, None where there are none; then it begins anew."""
        if not self._steps:
            return None
        steps, spent = self._steps, self._spent
        self._spent, self._steps = {}, 0
        return Times(steps, sum(spent.values()) / steps, self._divided({k: s / steps for k, s in spent.items()}))

    def _forget(self) -> None:
        self._spent, self._steps = {}, 0

    def _divided(self, spent: Mapping[Marked, float]) -> dict[Part, float]:
        """`spent`, with what was learnt of other steps told apart."""
        parts: dict[Part, float] = {}

        def add(part: Part, seconds: float) -> None:
            parts[part] = parts.get(part, 0.0) + seconds

        passed = sum(spent.get(part, 0.0) for part in ("forward", "backward", "optimizer"))
        joined = sum(spent.get(part, 0.0) for part in self._communication)
        for part, seconds in spent.items():
            if part == "passes":
                for pass_, share in (self._passes or {"other": 1.0}).items():
                    add(pass_, share * seconds)
                continue
            share = self._communication.get(part, 0.0)
            # Where the step that was looked into stood still longer than the part lasts now, its share is taken of the part.
            still = share * seconds * (passed / joined if share * passed < joined else 1.0)
            add(part, seconds - still)
            if still:
                add("communication", still)
        return parts


class DeviceStopwatch(Stopwatch):
    """For workers on a GPU: by events in its stream, in some steps, which are read once the device has passed them.

    What lies between two events is what the device did or waited for between them: a batch that is late, or a host
    that is too slow to give it work, shows where the device stands still for it. The steps are drawn at random, so
    that what returns every few steps is met as often as it is there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._random = random.Random(0)
        self._spare: list[torch.cuda.Event] = []
        super().__init__()

    def _forget(self) -> None:
        super()._forget()
        self._looking = self._skipping = False
        self._seconds = 0.0
        self._since = time.perf_counter()
        self._marks: list[tuple[Marked, torch.cuda.Event]] = []
        self._sampled: list[list[tuple[Marked, torch.cuda.Event]]] = []
        self._ended: torch.cuda.Event | None = None
        self._starved: list[bool] = []

    def resume(self) -> None:
        super().resume()
        self._since = time.perf_counter()
        self._skipping = False
        self._begin()

    def pause(self) -> None:
        if self.running:
            self._seconds += time.perf_counter() - self._since
        super().pause()
        self._looking = self._skipping = False
        self._ended = None

    def skip(self) -> None:
        # It is profiled, and waits for the device before and after.
        self.pause()
        self._skipping = True

    def mark(self, part: Marked) -> None:
        if self._ended is not None and part == "data":
            self._starved.append(self._ended.query())
            self._ended = None
        if self._looking:
            self._marks.append((part, self._now()))

    def step_done(self) -> None:
        if not self.running:
            if self._skipping:
                self.resume()
            return
        self._steps += 1
        if self._looking:
            self.mark("logging")
            self._sampled.append(self._marks)
            self._ended = next((event for last, event in reversed(self._marks) if last == "optimizer"), None)
        self._begin()

    def _begin(self) -> None:
        """Draws whether the step that begins here is looked into."""
        elapsed = self._seconds + time.perf_counter() - self._since
        self._looking = self._random.random() < SAMPLES_PER_S * elapsed / self._steps if self._steps else True
        # Its first event has no part before it.
        self._marks = [("logging", self._now())] if self._looking else []

    def _now(self) -> torch.cuda.Event:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def take(self) -> Times | None:
        passed = [marks for marks in self._sampled if marks[-1][1].query()]
        if not passed or not self._steps:
            return None
        self._sampled = self._sampled[len(passed) :]  # a stream passes them in their order
        spent: dict[Marked, float] = {}
        for marks in passed:
            for (_, begin), (part, end) in itertools.pairwise(marks):
                spent[part] = spent.get(part, 0.0) + begin.elapsed_time(end) / 1e3
            self._spare += [event for _, event in marks if event is not self._ended]
        now = time.perf_counter()
        steps, seconds = self._steps, self._seconds + (now - self._since if self.running else 0.0)
        self._steps, self._seconds, self._since = 0, 0.0, now
        starved, self._starved = self._starved, []
        step_s, looked_into = seconds / steps, sum(spent.values())
        scale = step_s / looked_into if looked_into else 0.0
        parts = self._divided({part: scale * each for part, each in spent.items()})
        return Times(steps, step_s, parts, sum(starved) / len(starved) if starved else None)


def stopwatch(device: torch.device) -> Stopwatch:
    """The stopwatch for a worker on `device`."""
    return DeviceStopwatch(device) if device.type == "cuda" else Stopwatch()
