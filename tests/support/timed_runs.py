"""Helpers for benchmarks of complete runs: synthetic images, and runs that are timed alone or in pairs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.contract.events import Chosen, EpochStarted, Planned, StepMetrics, TimeSpent
from engine.contract.job import Job
from engine.supervisor.environment import usable_cores
from tests.support.sides import Rates
from tests.support.worker_group import Forker, WorkerGroup


def make_images(
    folder: Path, count: int, side: int, suffix: str = ".jpg", *, held_out: int = 8, distinct: int | None = None
) -> Path:
    """Write an ImageFolder of two classes: `count` square images of `side` px, `held_out` of them for validation.

    JPEGs are smooth noise of quality 90, which takes as long to decode as photographs. BMPs need no decoding. After the
    first `distinct` images, files are links to earlier ones.
    """
    random = np.random.default_rng(0)
    paths: list[Path] = []
    for number in range(count):
        path = folder / ("val" if number < held_out else "train") / str(number % 2) / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if distinct is not None and number >= distinct:
            path.hardlink_to(paths[number % distinct])
            continue
        paths.append(path)
        coarse = random.integers(0, 256, (max(1, side // 8), max(1, side // 8), 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


class TimedRun:
    """Run that is timed for `steps` steps after `warm` warm-up steps and then terminated.

    `rate` is the speed in images per second.
    """

    def __init__(self, forker: Forker, job: Job, folder: Path, *, warm: int, steps: int) -> None:
        self.group = WorkerGroup(forker, job, folder, every_step=True)
        times: dict[int, float] = {}

        def reached(_rank: int, message: Any) -> bool:
            if isinstance(message, StepMetrics):
                times[message.step] = time.perf_counter()
            return warm + steps in times

        try:
            self.group.read(reached, 600)
        finally:
            self.group.close()
        if warm + steps not in times:
            raise SystemExit(self.group.logs() or str(self.group.messages))
        self.rate = steps * job.training.batch_size / (times[warm + steps] - times[warm])


class WatchedRun:
    """Run that is measured until it has trained for `seconds` after its first epoch, and then terminated.

    `rates` are the training speeds without validation. They are measured up to the last reported step. `choices` maps
    each automatic field to the value that Footplate chose. `bottleneck` is Footplate's last advice on the training
    speed, or "".
    """

    rates: Rates
    choices: dict[str, Chosen]
    bottleneck: str

    def __init__(self, forker: Forker, job: Job, folder: Path, *, seconds: float) -> None:
        self._steps_per_epoch = self._train_images = 0
        self._batch_size = job.training.batch_size
        self._epoch, self._epoch_began = 0, 0.0
        self._first: float | None = None  # images per second of the first epoch
        # Number of images after the first epoch and the seconds spent on them, without the current epoch and with it.
        self._closed = self._done = (0, 0.0)
        self._window = (0.0, 0.0)  # start of the second epoch and time of the last step
        group = WorkerGroup(forker, job, folder, threads=max(1, usable_cores() // len(job.parallel.devices)))
        try:
            group.read(lambda _, message: self._process_message(message) >= seconds, 3600)
        finally:
            group.close()
        images, spent = self._done
        if self._first is None or not spent:
            raise SystemExit(group.logs() or str(group.messages[-3:]))
        self.rates = Rates(self._first, images / spent, self._window)
        self.choices = {chosen.field: chosen for chosen in group.of(Chosen)}
        self.bottleneck = next((spent.advice.sentence for spent in reversed(group.of(TimeSpent)) if spent.advice), "")

    def _process_message(self, message: Any) -> float:
        """Process a message of the run. If it reports a step, return the seconds of training after the first epoch.

        Return 0 for other messages.
        """
        now = time.monotonic()
        match message:
            case Planned():
                self._steps_per_epoch, self._train_images = message.steps_per_epoch, message.train_images
            case EpochStarted():
                self._epoch, self._epoch_began = message.epoch, now
            case StepMetrics():
                done = message.step - (self._epoch - 1) * self._steps_per_epoch
                is_epoch_end = done == self._steps_per_epoch
                images = min(done * self._batch_size, self._train_images)  # an incomplete last batch is left out
                return self._update_rate(images, now, is_epoch_end=is_epoch_end)
        return 0.0

    def _update_rate(self, images: int, now: float, *, is_epoch_end: bool) -> float:
        """Update the speed after `images` images of the current epoch, which ends now if `is_epoch_end`.

        Returns the seconds trained since the first epoch's end.
        """
        if self._epoch == 1:
            if is_epoch_end:
                self._first = images / (now - self._epoch_began)
            return 0.0
        before, spent = self._closed
        self._done = before + images, spent + now - self._epoch_began
        self._window = self._window[0] or self._epoch_began, now
        if is_epoch_end:
            self._closed = self._done
        return self._done[1]


def run_side_by_side(forkers: tuple[Forker, Forker], job: Job, folder: Path, *, warm: int, steps: int) -> float:
    """Train two independent runs of `job` at the same time, and return the sum of their images per second.

    Each is timed for `steps` steps after `warm` warm-up steps.
    """
    rates: list[float] = []

    def run(forker: Forker, place: Path) -> None:
        rates.append(TimedRun(forker, job, place, warm=warm, steps=steps).rate)

    threads = [
        threading.Thread(target=run, args=(forker, folder / str(number))) for number, forker in enumerate(forkers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(rates) != len(forkers):
        raise SystemExit(1)  # the thread has printed the reason
    return sum(rates)
