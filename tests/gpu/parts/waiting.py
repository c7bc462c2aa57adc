"""Check that training steps never wait for the GPU, in any task. Waits that libraries cause are only reported."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from engine.contract.events import StepMetrics
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.gpu.hooks import FIRST, is_caused_by_library, read_record
from tests.gpu.jobs import NEEDS, TASKS, make_job

BATCH = 4
WATCHED = 20
"""Number of steps per task whose waits are counted."""


def report_waits(context: CheckContext, *, task: str) -> None:
    """Train a task (a key of `jobs.TASKS`) for a few steps, and report the lines of code that waited for the GPU."""
    missing = [package for package in NEEDS.get(task, ()) if find_spec(package) is None]
    if missing:
        raise Skipped(f"{' and '.join(missing)} not installed")
    steps = 3 if context.rehearsing else FIRST - 1 + WATCHED
    job = make_job(task, context.folder, context.gpu, train=steps * BATCH, batch=BATCH)
    group = context.run(job, every_step=False, prepare="tests.gpu.hooks:record_waits")
    places: dict[str, int] = read_record(group.folder)
    step = group.of(StepMetrics)[-1].step
    context.claim(f"{task}: trains on the device", step >= steps - 1, f"{step} steps")
    if context.rehearsing:
        raise Skipped(f"{task}: waits are counted on GPUs only")
    local_calls = {place: count for place, count in places.items() if not is_caused_by_library(place, task)}
    text = "; ".join(
        f"{count} times in {place}" for place, count in sorted(local_calls.items(), key=lambda item: -item[1])[:5]
    )
    context.measure(
        f"{task}: waits in Footplate's code in {WATCHED} steps", sum(local_calls.values()), "", at_most=0, text=text
    )
    others = {place: count for place, count in places.items() if place not in local_calls}
    if others:
        text = "; ".join(
            f"{count} in {place}" for place, count in sorted(others.items(), key=lambda item: -item[1])[:5]
        )
        context.measure(f"{task}: waits in libraries per step", sum(others.values()) / WATCHED, "", text=text)


def main() -> None:
    run_checks({task: (partial(report_waits, task=task), 75) for task in TASKS})


if __name__ == "__main__":
    main()
