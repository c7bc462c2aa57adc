"""Time to open a run with a million logged steps.

    python tests/benchmarks/open_long_run.py [--steps N] [--times N] [--executions N]

The benchmark writes such a run, with a step every 0.1 s, device samples every second, and some validations. Each
further execution starts a night later and resumes 500 steps earlier. It opens the run offscreen on the run page of a
1280 x 800 window. The output shows the time to the first curve, the time to all curves, and the longest block of the
event loop. The aims are 0.5 s and 2 s of the thread's CPU time, because wall-clock time includes other processes. The
exit code is 1 if an aim is missed.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from engine.contract.devices import CPU, DeviceSample
from engine.contract.events import (
    AnyEvent,
    DevicesSampled,
    EpochStarted,
    Outcome,
    Planned,
    RunDevice,
    RunFinished,
    RunStarted,
    StepMetrics,
    Validation,
)
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run
from gui.run.page import RunPage
from gui.sources.run_session import RunSession
from tests.benchmarks.frame import create_application, describe_environment, make_parser, use_empty_home
from tests.gui.sources.written_runs import write

FIRST_AIM_S, ALL_AIM_S = 0.5, 2.0
PER_EPOCH, BACK, NIGHT_S = 20_000, 500, 36_000.0
PAGE = (640, 690)


def story(steps: int, executions: int) -> Iterator[AnyEvent]:
    per_execution = steps // executions
    for execution in range(executions):
        first = max(0, execution * per_execution - BACK)
        last = steps if execution == executions - 1 else (execution + 1) * per_execution
        start = time.time() - steps / 10 - (executions - execution) * NIGHT_S
        yield from make_execution_events(steps, first, last, start, execution + 1)


def make_execution_events(steps: int, first: int, last: int, start: float, execution: int) -> Iterator[AnyEvent]:
    """Yield synthetic events of an execution that trains from step `first` (exclusive) to `last` (inclusive) of `steps`.

    `execution` is its number, and `start` is the time of its step 0.
    """
    job = Job.from_fields(dataset="/data/flowers", epochs=max(1, steps // PER_EPOCH))
    device = RunDevice(id=CPU, name="AMD EPYC", ranks=(0,))
    yield RunStarted(
        time=start + first / 10, run_id="a-run", job=job, devices=(device,), world_size=1, environment={},
        supervisor_pid=1, execution=execution,
    )  # fmt: skip
    yield Planned(
        time=start + first / 10, epochs=job.training.epochs, from_step=first, steps_per_epoch=PER_EPOCH, train_images=8,
        val_images=20, classes=("daisy", "rose"), image_size=64, parameters=1000, trainable_parameters=1000,
    )  # fmt: skip
    for step in range(first + 1, last + 1):
        now = start + step / 10
        epoch = (step - 1) // PER_EPOCH + 1
        if step % PER_EPOCH == 1:
            yield EpochStarted(time=now, epoch=epoch)
        yield StepMetrics(
            time=now, epoch=epoch, step=step, loss=2 * math.exp(-3 * step / steps) + 0.1 * math.sin(12.9898 * step),
            accuracy=step / steps, learning_rate=0.005 * (1 + math.cos(math.pi * step / steps)),
            images_per_second=800 + math.sin(step), data_wait_s=0.002 + 1e-4 * math.sin(step), compute_s=0.0412345678,
        )  # fmt: skip
        if step % 10 == 0:
            yield DevicesSampled(
                time=now, samples=(DeviceSample(device=CPU, utilization_percent=91.5, memory_used_bytes=3 << 30),)
            )
        if step % PER_EPOCH == 0:
            yield Validation(
                time=now, epoch=epoch, step=step, measures={"loss": 0.5, "top1": 0.8}, images=20, seconds=1.0
            )
    outcome: Outcome = "completed" if last == steps else "paused"
    yield RunFinished(time=now + 1, outcome=outcome, execution=execution, seconds=(last - first) / 10)


Moment = tuple[float, float]
"""Wall time and CPU time of the thread, in seconds."""


def now() -> Moment:
    return time.perf_counter(), time.thread_time()


def time_opening(run: RunFolder, steps: int) -> tuple[Moment, Moment, float]:
    """Open a run with `steps` steps on the window's run page.

    Returns the times until the first curve and until all curves are drawn, and the longest time in seconds for which
    the event loop was blocked.
    """
    store = RunSession()
    page = RunPage(store)
    page.resize(*PAGE)
    page.show()
    _process_events_for(1.0)  # the time that a user needs to open a run
    drawn: dict[int, Moment] = {}
    beats: list[float] = []

    def poll() -> None:
        beats.append(time.perf_counter())
        drawn_line = page.charts.loss._lines["train"]._drawn_state if page.charts is not None else None
        if drawn_line is not None and drawn_line[1]:
            drawn.setdefault(drawn_line[1], now())

    timer = QTimer(interval=0)
    timer.timeout.connect(poll)
    start = now()
    store.open(run)
    timer.start()
    while steps not in drawn:
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 50)
    timer.stop()
    store.close()
    page.close()
    page.deleteLater()
    stall = max(after - before for before, after in pairwise(beats))
    first, complete = ((wall - start[0], cpu - start[1]) for wall, cpu in (drawn[min(drawn)], drawn[steps]))
    return first, complete, stall


def _process_events_for(seconds: float) -> None:
    loop = QEventLoop()
    QTimer.singleShot(int(1000 * seconds), loop.quit)
    loop.exec()


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--executions", type=int, default=1)
    options = parser.parse_args()
    _app = create_application()
    with use_empty_home():
        run = create_run(Job.from_fields(dataset="/data/flowers"))
        write(run.events_file, story(options.steps, options.executions))
        print(describe_environment())
        print(f"{options.steps:,} steps, {run.events_file.stat().st_size / 2**20:.0f} MiB of log")
        results = [time_opening(run, options.steps) for _ in range(options.times)]
    medians = [statistics.median(column) for column in zip(*(sum(result[:2], ()) for result in results), strict=True)]
    stall = max(result[2] for result in results)
    for what, aim, wall, cpu in (("first curve", FIRST_AIM_S, *medians[:2]), ("all", ALL_AIM_S, *medians[2:])):
        print(f"{what:12} {wall:.2f} s, {cpu:.2f} s of the thread's own (aim {aim} s)")
    print(f"longest hold of the event loop {1000 * stall:.0f} ms")
    return 0 if medians[1] <= FIRST_AIM_S and medians[3] <= ALL_AIM_S else 1


if __name__ == "__main__":
    sys.exit(main())
