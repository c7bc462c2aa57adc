"""Gain of a pipeline over the same stages without one: `python tests/benchmarks/pipeline_speed.py`.

Two single-threaded CPU workers are used. In every round, these variants take turns, timed from the third step of the
first epoch: a single-device run; two such runs at once, which shows the gain from the second core; a pipeline with each
schedule and Footplate's split points; and model parallel training with the same stages (ZBV has four stages, so it is
compared with the stages of 1F1B). All use the same 8 microbatches, because layers take longer for eight small batches
than for a large one.

The output shows medians over the rounds. For each schedule, these are its speed relative to model parallel training,
the limit of that speed, the ratio of both, and the measured and the theoretical bubble. The limit is the schedule's
busy fraction times the gain from the second core. The aims are 0.9 of the limit, a bubble within five points of theory
for GPipe and 1F1B, and a smaller bubble than that of 1F1B for ZB1P and ZBV.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from pathlib import Path
from typing import Any

from engine.contract.events import Planned, ScheduleTraced
from engine.contract.job import Job
from tests.benchmarks.frame import describe_environment, make_parser, print_rates, use_empty_home
from tests.support.timed_runs import TimedRun, make_images, run_side_by_side
from tests.support.worker_group import Forker

SPLIT_OF = {"gpipe": "gpipe", "1f1b": "1f1b", "zb1p": "1f1b", "zbv": "zbv"}
"""Schedule whose split points each schedule uses. A schedule that maps to itself uses its automatic ones."""
ALIKE = {"gpipe": "gpipe", "1f1b": "1f1b", "zb1p": "1f1b", "zbv": "1f1b"}
"""Schedule whose split points model parallel training uses when it is compared with each schedule."""
MICROBATCHES, WARM = 8, 2
AIM, BUBBLE_AIM = 0.9, 0.05


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="vit_b_16", help="its equal blocks can be balanced")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--schedules", nargs="*", default=list(SPLIT_OF), choices=list(SPLIT_OF))
    chosen = parser.parse_args()
    rates: dict[str, list[float]] = {}
    traced: dict[str, list[ScheduleTraced]] = {name: [] for name in chosen.schedules}
    points: dict[str, tuple[str, ...]] = {}
    with use_empty_home() as folder, contextlib.closing(Forker()) as first, contextlib.closing(Forker()) as second:
        count = (WARM + chosen.steps + 1) * chosen.batch_size + 8
        fields: dict[str, Any] = {
            "dataset": str(make_images(folder / "data", count, chosen.image_size, ".bmp")),
            "model": chosen.model,
            "image_size": chosen.image_size,
            "batch_size": chosen.batch_size,
            "epochs": 1000,
            "loader_workers": 1,
        }
        pair: dict[str, Any] = fields | {"devices": ("cpu", "cpu")}
        single = Job.from_fields(**fields, accumulation=MICROBATCHES)
        window = {"warm": WARM, "steps": chosen.steps}
        for number in range(chosen.rounds):
            place = folder / str(number)

            def run_and_record(job: Job, side: str, place: Path = place) -> TimedRun:
                run = TimedRun(first, job, place / side, **window)
                rates.setdefault(side, []).append(run.rate)
                return run

            run_and_record(single, "alone")
            together = run_side_by_side((first, second), single, place / "side", **window)
            rates.setdefault("side by side", []).append(together)
            for schedule in chosen.schedules:
                run = run_and_record(
                    Job.from_fields(
                        **pair, strategy="pipeline", pipeline_schedule=schedule, microbatches=MICROBATCHES,
                        split_points=points.get(SPLIT_OF[schedule], ()),
                    ),
                    schedule,
                )  # fmt: skip
                (plan,) = [plan.model_split for plan in run.group.of(Planned) if plan.model_split]
                points.setdefault(SPLIT_OF[schedule], plan.split_points)
                traced[schedule] += [event for event in run.group.of(ScheduleTraced) if event.step > WARM]
            for kind in sorted({ALIKE[schedule] for schedule in chosen.schedules}):
                job = Job.from_fields(
                    **pair, strategy="model_parallel", accumulation=MICROBATCHES, split_points=points.get(kind, ())
                )
                run_and_record(job, f"model parallel, split of {kind}")
    print(describe_environment())
    print(
        f"{chosen.model}, {chosen.image_size} px, batch {chosen.batch_size}, {MICROBATCHES} microbatches, two workers "
        f"of one thread, {chosen.rounds} rounds of {chosen.steps} steps; split points: {points}"
    )
    medians = print_rates(rates)
    second_core = medians["side by side"] / medians["alone"]
    print(f"side by side over alone: {second_core:.3f}")
    met = True
    bubbles: dict[str, float] = {}
    for schedule, events in traced.items():
        theory = events[0].theory
        bubbles[schedule] = statistics.median(event.bubble for event in events)
        gained = medians[schedule] / medians[f"model parallel, split of {ALIKE[schedule]}"]
        allowed = (1 - theory) * second_core
        print(
            f"{schedule}: {gained:.3f} of model parallel, allowed {allowed:.3f}, ratio {gained / allowed:.3f} (aim {AIM}); "
            f"bubble {bubbles[schedule]:.1%}, theory {theory:.1%}, of {len(events)} steps"
        )
        met &= gained / allowed >= AIM
        met &= schedule not in ("gpipe", "1f1b") or abs(bubbles[schedule] - theory) <= BUBBLE_AIM
        met &= schedule not in ("zb1p", "zbv") or "1f1b" not in bubbles or bubbles[schedule] < bubbles["1f1b"]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
