"""What the benchmarks of whole runs share: made pictures, a run that is timed and ended, two of them side by side."""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from engine.contract.events import StepMetrics
from engine.contract.job import Job
from tests.support.worker_group import Forker, WorkerGroup


def where() -> str:
    """The versions and the hardware, for the first line of a report."""
    torchs = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{torchs}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def make_pictures(folder: Path, count: int, side: int, suffix: str = ".jpg", held_out: int = 8) -> Path:
    """An ImageFolder of two classes: `count` square pictures of `side` px, of which `held_out` are for validation.

    JPEGs are smooth noise of quality 90, so that they decode like photographs; the bytes of a BMP need no decoding.
    """
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / ("val" if number < held_out else "train") / str(number % 2) / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = random.integers(0, 256, (max(1, side // 8), max(1, side // 8), 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


class TimedRun:
    """A run of `job`, timed over `steps` steps after the first `warm` and then ended. `rate` is pictures per second."""

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
        self.rate = steps * job.batch_size / (times[warm + steps] - times[warm])


def side_by_side(forkers: tuple[Forker, Forker], job: Job, folder: Path, *, warm: int, steps: int) -> float:
    """The sum of the rates of two independent runs at the same time."""
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
        raise SystemExit(1)  # the thread has printed why
    return sum(rates)
