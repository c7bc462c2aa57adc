"""Cost of the exchange between ranks at each step: `python tests/benchmarks/agreement.py [--ranks N]`.

In each step, gloo ranks sleep for a random time and then exchange their requests. The sleep replaces a GPU that
computes while the host waits. Three variants take turns: no exchange; an exchange in which every step waits for all
ranks; and the exchange of Footplate's training loop, whose result is read after the next step. The output shows the
median step times, and by how much the two kinds of exchange prolong a step. The exit code is 1 if Footplate's exchange
costs more than half as much as the other one.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from engine.strategies.collectives import GroupCollectives
from engine.training.agreement import Agreement, Requests
from tests.benchmarks.frame import describe_environment, make_parser

AIM = 0.5
STEP_S = 0.004, 0.008
"""Minimum and maximum sleep in a step, in seconds."""
VARIANTS = ("none", "at once", "overlapped")


def time_steps(variant: str, agreement: Agreement, lengths: list[float]) -> float:
    """Simulate steps of the given `lengths` in seconds, and return the milliseconds per step.

    `variant` determines how the ranks exchange requests in each step: "none" (not at all), "at once" or "overlapped"
    (with the next step).
    """
    started = time.perf_counter()
    for length in lengths:
        time.sleep(length)
        if variant != "none":
            agreement.exchange(Requests(), at_once=variant == "at once")
    agreement.discard_pending()
    return 1e3 * (time.perf_counter() - started) / len(lengths)


def run_rank(rank: int, ranks: int, turns: int, length: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None
    agreement = Agreement(GroupCollectives(dist.group.WORLD), ranks)
    draws = random.Random(rank)
    measured: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for index in range(turns):
        lengths = [draws.uniform(*STEP_S) for _ in range(length)]
        for variant in VARIANTS[index % 3 :] + VARIANTS[: index % 3]:
            dist.barrier()
            measured[variant].append(time_steps(variant, agreement, lengths))
    if rank == 0:
        Path(folder, "result").write_text(" ".join(str(statistics.median(measured[variant])) for variant in VARIANTS))
    dist.destroy_process_group()


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=100, help="steps per turn")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (chosen.ranks, chosen.turns, chosen.steps, folder), chosen.ranks)
        none, at_once, overlapped = map(float, Path(folder, "result").read_text().split())
    ratio = (overlapped - none) / (at_once - none)
    print(f"{describe_environment()}, {chosen.ranks} ranks")
    print(f"per step: {none:.2f} ms alone, +{at_once - none:.2f} ms at once, +{overlapped - none:.2f} ms overlapped")
    print(f"ratio of the added times: {ratio:.2f} (aim: at most {AIM})")
    return 0 if ratio <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
