"""Training on the CPU beside other programs: `python tests/benchmarks/busy_machine.py [--programs N] [--rounds N]`.

Trains resnet18 on generated images with a thread per core, on the machine as it is and beside `--programs` programs that
each use a core. PyTorch's threads sleep while they wait for each other, as in every run, or spin as by OpenMP's default.
Prints the images per second, and the ratios of sleeping to spinning (medians). The exit code is 1 if a ratio is below
its aim.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.supervisor.environment import usable_cores
from tests.benchmarks.frame import describe_environment, make_parser
from tests.benchmarks.outcome import record_training
from tests.support.timed_runs import make_images

AIMS = {"alone": 0.97, "beside others": 2.0}
WAYS = {"sleeping": {}, "spinning": {"GOMP_SPINCOUNT": "300000"}}
"""Environment variables. Spinning is GNU OpenMP's default if there are no more threads than cores."""
WARM_UP = 3
"""Number of steps at the start that are not measured."""


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--programs", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(describe_environment())
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        data = make_images(Path(folder), 168, 96)
        for place, programs in (("alone", 0), ("beside others", options.programs)):
            rates = {way: list[float]() for way in WAYS}
            with use_cores(programs):
                for _ in range(options.rounds):
                    for way, variables in WAYS.items():
                        rates[way].append(measure_rate(data, variables))
            sleeping, spinning = map(statistics.median, rates.values())
            ratios[place] = sleeping / spinning
            print(f"{place}: {sleeping:.1f} images/s sleeping, {spinning:.1f} spinning: {ratios[place]:.2f} times")
    return int(any(ratios[place] < aim for place, aim in AIMS.items()))


@contextlib.contextmanager
def use_cores(count: int) -> Iterator[None]:
    """Run `count` programs that each use a core inside the context."""
    programs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)
    ]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure_rate(data: Path, variables: dict[str, str]) -> float:
    """Return the median images per second of the steps of a short training."""
    arguments = [data, "--json", "--model", "resnet18", "--no-pretrained", "--image-size", 64, "--batch-size", 16]
    arguments += ["--epochs", 1, "--devices", "cpu", "--cpu-threads", usable_cores(), "--start", "at_once"]
    steps = [event for event in record_training(arguments, variables) if event["type"] == "step"]
    return statistics.median(step["images_per_second"] for step in steps[WARM_UP:])


if __name__ == "__main__":
    sys.exit(main())
