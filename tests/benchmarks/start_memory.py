"""Memory of each rank while its model is built and sharded: `python tests/benchmarks/start_memory.py [--strategy tp]`.

FSDP, or another strategy that divides the model, starts with vit_b_16 on CPU workers: once with the complete model on
every rank, and once as Footplate does, with the complete model only on rank 0. The output shows the peak private memory
(RssAnon of proc(5), Linux only) that each rank needs before training, and the ratio for the ranks other than 0. The
exit code is 1 if the ratio exceeds 0.75.
"""

from __future__ import annotations

import sys
from contextlib import closing

from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.strategies import STRATEGIES
from engine.strategies.fsdp import FullySharded
from engine.strategies.pipeline import Pipeline
from tests.benchmarks.checkpoint_memory import MIB, PeakMemory
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker

AIM = 0.75


def build_everywhere(_spec: WorkerSpec) -> None:
    """Make the worker build the complete model on every rank."""
    for strategy in (FullySharded, Pipeline):
        strategy.receives_weights = False  # type: ignore[assignment,method-assign]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="vit_b_16")
    parser.add_argument("--strategy", default="fsdp", choices=tuple(STRATEGIES))
    chosen = parser.parse_args()
    with use_empty_home() as folder, closing(Forker()) as forker:
        job = Job.from_fields(
            dataset=str(make_images(folder / "images", 8 + 8 * chosen.ranks, 32, ".bmp")),
            model=chosen.model,
            image_size=32,
            batch_size=2 * chosen.ranks,
            devices=("cpu",) * chosen.ranks,
            strategy=chosen.strategy,
            optimizer="sgd",
            epochs=1,
            predictions=0,
            cpu_threads=1,
            precision="fp32",
            memory_format="contiguous",
        )
        peaks = PeakMemory(forker)
        peaks.train("everywhere", forker, job, folder, prepare="tests.benchmarks.start_memory:build_everywhere")
        peaks.train("rank 0", forker, job, folder)
        peaks.stage = "done"
    print(f"{describe_environment()}\n{chosen.strategy}, {chosen.model}, peaks before training")
    before, after = (peaks.bytes[f"{name}: preparing"] for name in ("everywhere", "rank 0"))
    for title, taken in (("complete model on every rank", before), ("complete model on rank 0", after)):
        print(f"{title:<30}", "  ".join(f"rank {rank}: {each / MIB:.0f} MiB" for rank, each in sorted(taken.items())))
    ratio = max(after[rank] for rank in after if rank) / max(before[rank] for rank in before if rank)
    print(f"ranks other than 0: {ratio:.2f} of it; the aim is {AIM}")
    return int(ratio > AIM)


if __name__ == "__main__":
    sys.exit(main())
