"""Time until a run trains again after losing a rank, and until a stopped or paused run frees its devices.

    python tests/benchmarks/recovery.py [--times N] [--model NAME ...]

DDP trains on two CPU workers that are forked by a preloaded process, like runs of the window. N times per model, the
benchmark kills rank 1 and waits until the failure of this rank is reported and until the restarted workers report a
step. Each may take 2 s. Then it pauses, resumes and stops the run. After the pause and after the stop, it waits until
the devices are free and the state is saved, which may take 3 s. A client measures all times when it receives the
events. The exit code is 1 if a single measurement exceeds its limit.
"""

from __future__ import annotations

import select
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    DevicesFree,
    Failed,
    Planned,
    Restarting,
    RunFinished,
    RunStarted,
    StepMetrics,
)
from engine.contract.job import Job
from engine.contract.protocol import Pause, Stop, Welcome
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import Preloader
from engine.runs.resume import last_execution
from engine.system import paths
from tests.benchmarks.frame import describe_environment, make_parser, start_preloader, use_empty_home

AIMS_S = {
    "killed -> named": 2.0,
    "killed -> first step again": 2.0,
    "pause -> devices free": 3.0,
    "stop -> devices free": 3.0,
}
STEPS = 5
"""Number of steps that a run must have trained before a rank is killed or it is paused."""
SIZES = {"mnist_cnn": 28, "resnet18": 64}


class Follower:
    """Client that starts an execution of a run and receives its events."""

    def __init__(self, preloader: Preloader, run: RunFolder) -> None:
        execution = last_execution(run) + 1
        preloader.start_run(run)
        while last_execution(run) < execution:
            time.sleep(0.005)
        self.run = run
        self.connection = RunConnection(run, 1)
        self._stream = self._events()
        self.wait_until(lambda event: isinstance(event, RunStarted) and event.execution == execution)

    def wait_until(self, is_expected: Callable[[AnyEvent], object]) -> float:
        """Wait for an event that satisfies `is_expected`, and return the time of its arrival."""
        for event in self._stream:
            if is_expected(event):
                return time.monotonic()
            if isinstance(event, Failed):
                sys.exit(f"{event.cause}\nSee {self.run.path}")
        sys.exit(f"the run has ended; see {self.run.path}")

    def wait_for_training(self) -> None:
        """Wait until the run has taken some steps and saved a checkpoint."""
        self.wait_until(lambda event: isinstance(event, StepMetrics))
        self.wait_until(lambda event: isinstance(event, CheckpointSaved) and event.kind == "last")
        self.wait_until(lambda event: isinstance(event, StepMetrics))

    def kill_rank(self) -> tuple[float, float]:
        """Kill rank 1. Return the seconds until the failure is reported, and the seconds until training continues."""
        supervisor = self.run.supervisor()
        assert supervisor is not None
        (worker,) = [one for one in psutil.Process(supervisor.pid).children() if one.name() == "footplate-w1"]
        killed = time.monotonic()
        worker.send_signal(signal.SIGKILL)
        named = self.wait_until(lambda event: isinstance(event, Restarting) and event.rank == 1)
        self.wait_until(lambda event: isinstance(event, Planned))
        return named - killed, self.wait_until(lambda event: isinstance(event, StepMetrics)) - killed

    def end_run(self, command: Pause | Stop) -> float:
        """Send a command that ends the run. Return the seconds until its devices are free."""
        asked = time.monotonic()
        self.connection.send(command)
        free = self.wait_until(lambda event: isinstance(event, DevicesFree))
        self.wait_until(lambda event: isinstance(event, RunFinished))
        self.connection.close()
        return free - asked

    def _events(self) -> Iterator[AnyEvent]:
        while not self.connection.closed:
            select.select([self.connection], [], [], 60.0)
            for message in self.connection.receive():
                if not isinstance(message, Welcome):
                    yield message  # type: ignore[misc]


def measure(preloader: Preloader, model: str) -> dict[str, float]:
    """Start a run, kill a rank, pause the run, resume and stop it. Return the measured seconds by the names in `AIMS_S`."""
    size = SIZES.get(model, 64)
    run = create_run(
        Job.from_fields(
            dataset=str(paths.sample_dataset()),
            model=model,
            image_size=size,
            strategy="ddp",
            devices=("cpu", "cpu"),
            epochs=10_000,
            checkpoint_steps=STEPS,
        )
    )
    follower = Follower(preloader, run)
    follower.wait_for_training()
    named, again = follower.kill_rank()
    follower.wait_for_training()
    paused = follower.end_run(Pause())
    follower = Follower(preloader, run)
    follower.wait_for_training()
    return dict(zip(AIMS_S, (named, again, paused, follower.end_run(Stop())), strict=True))


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--model", nargs="+", default=list(SIZES))
    options = parser.parse_args()
    print(describe_environment())
    met = True
    with use_empty_home(), start_preloader() as starter:
        for model in options.model:
            rounds = [measure(starter, model) for _ in range(options.times)]
            print(f"{model}, {SIZES.get(model, 64)} px, two CPU ranks under DDP, {len(rounds)} times:")
            for name, aim in AIMS_S.items():
                seconds = [times[name] for times in rounds]
                met = met and max(seconds) <= aim
                verdict = "met" if max(seconds) <= aim else "missed"
                print(
                    f"  {name:27} median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s"
                    f"  (aim {aim:g} s: {verdict})"
                )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
