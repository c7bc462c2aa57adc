"""Pauses of training for checkpoints: `python tests/benchmarks/checkpoint_pause.py [--minutes M] [--count N]`.

Real workers train resnet50 with SGD and momentum on synthetic images, and save a checkpoint every minute by default.
The pause is the time for which training stops because of a checkpoint. The output also shows by how much steps slow
down while the file is written. The exit code is 1 if the mean pause exceeds 2% of the interval.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from typing import Any

from engine.contract.events import CheckpointSaved, StepMetrics
from engine.contract.job import Job
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker, WorkerGroup

AIM = 0.02
WARM = 3
"""Number of warm-up steps to ignore."""


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="between checkpoints")
    parser.add_argument("--count", type=int, default=3, help="checkpoints")
    parser.add_argument("--device", default="cpu", help="cpu, or the UUID of a GPU")
    parser.add_argument("--side", type=int, default=64, help="images' side in pixels")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    saved: list[CheckpointSaved] = []
    steps: list[float] = []
    writing: list[tuple[float, float]] = []

    def enough(_rank: int, message: Any) -> bool:
        now = time.perf_counter()
        if isinstance(message, StepMetrics):
            steps.append(now)
        elif isinstance(message, CheckpointSaved):
            saved.append(message)
            writing.append((now - message.seconds, now))
        # Add a step, so that all steps during the write are included.
        return len(saved) == chosen.count and bool(steps) and steps[-1] > writing[-1][1]

    with use_empty_home() as folder, closing(Forker()) as forker:
        job = Job.from_fields(
            dataset=str(make_images(folder / "images", 20_000, chosen.side, ".bmp", distinct=64)),
            model="resnet50",
            image_size=chosen.side,
            batch_size=chosen.batch,
            devices=(chosen.device,),
            epochs=1000,
            cpu_threads=chosen.threads if chosen.device == "cpu" else None,
            memory_format="contiguous",
            compile="off",
            checkpoint_minutes=chosen.minutes,
        )
        group = WorkerGroup(forker, job, folder / "run", every_step=True, threads=chosen.threads)
        try:
            group.read(enough, 60 * chosen.minutes * (chosen.count + 1) + 300)
        finally:
            group.close()
        if len(saved) < chosen.count:
            raise SystemExit(group.logs() or str(group.messages[-3:]))

    took = [(end, end - started_at) for started_at, end in zip(steps[WARM:], steps[WARM + 1 :], strict=False)]
    median = statistics.median(seconds for _, seconds in took)
    print(describe_environment())
    print(f"resnet50 at {chosen.side} px, batch {chosen.batch}, {chosen.device}, {chosen.threads} threads")
    print(f"{saved[0].bytes / 1e6:.0f} MB every {60 * chosen.minutes:g} s; median step {median:.3f} s")
    for event, (started_at, end) in zip(saved, writing, strict=True):
        slowed = sum(seconds - median for at, seconds in took if at > started_at and at - seconds < end)
        print(
            f"step {event.step}: pause {event.pause_s:.3f} s; written in {event.seconds:.2f} s, "
            f"in which steps took {slowed - event.pause_s:+.2f} s longer"
        )
    share = statistics.mean(event.pause_s for event in saved) / (60 * chosen.minutes)
    print(f"pause: {share:.2%} of the time between checkpoints (aim: at most {AIM:.0%})")
    return 0 if share <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
