"""Time to the first loss on two machines compared with one: `python tests/benchmarks/machines_start.py` (as root).

`footplate train` trains on the sample dataset with DDP. In turns, it uses two CPU workers on the head, and one CPU
worker in each of two network namespaces that are connected by ssh. The output shows the seconds from the command to the
first loss, and the difference of the medians, which should be at most 3 s.
"""

from __future__ import annotations

import statistics
import sys
import time

from engine.contract.events import StepMetrics
from engine.runs.folder import RunFolder
from engine.system.paths import sample_dataset
from tests.benchmarks.frame import describe_environment, make_parser, start_machines
from tests.support.machines import Machines

SIDES = {"one machine": "cpu,cpu", "two machines": "node1:cpu,node2:cpu"}
FLAGS = (
    *("--model", "mnist_cnn", "--image-size", "28", "--recipe", "", "--strategy", "ddp", "--epochs", "1"),
    *("--batch-size", "32", "--predictions", "0"),
)
AIM_S = 3.0


def first_loss_s(pair: Machines, devices: str) -> float:
    start = time.time()
    done = pair.footplate("train", str(sample_dataset()), *FLAGS, "--devices", devices)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    run = RunFolder(max((pair.home / "runs").iterdir()))
    return next(event.time for event in run.events() if isinstance(event, StepMetrics)) - start


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {side: [] for side in SIDES}
    with start_machines() as pair:
        for number in range(rounds + 1):
            for side, devices in SIDES.items():
                seconds = first_loss_s(pair, devices)
                if number:  # the first turn fills the disk cache
                    taken[side].append(seconds)
    print(describe_environment())
    for side, values in taken.items():
        print(f"{side}: {', '.join(f'{value:.2f}' for value in values)} s to the first loss")
    one, two = map(statistics.median, taken.values())
    print(f"on two machines {two - one:+.2f} s (aim {AIM_S:g} s)")
    return 0 if two - one <= AIM_S else 1


if __name__ == "__main__":
    sys.exit(main())
