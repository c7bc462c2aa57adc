"""Memory that each rank needs for a checkpoint: `tests/benchmarks/checkpoint_memory.py [--strategy S …] [--ranks N …]`.

CPU workers train vit_b_16 with AdamW and averaged weights, save a checkpoint, validate, and resume. The output shows
how much private memory (RssAnon of proc(5), Linux only) each rank needs in addition to the training's memory, for
saving and for resuming, compared with its shard of the state. Rank 0 holds the complete state for the file. The exit
code is 1 if another rank needs more than 0.3 of its shard plus one layer.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import torch

from engine.contract.events import Failed, LogLine, PhaseChanged, StepMetrics
from engine.contract.job import Job
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.training.checkpointing.checkpoint_files import read_checkpoint
from engine.training.trainer import Trainer
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker, WorkerGroup

AIM = 0.3
PERIOD_S = 0.01
MIB = 1 << 20
WAIT = "tests.benchmarks.checkpoint_memory:wait_for_ranks"
_DIVIDED = re.compile(r"are divided among .* (\d+)% of the parameters")


class PeakMemory:
    """Recorder of the peak private memory of the forked workers.

    `bytes` maps a stage of a run to the peak of each rank. `stage` is the current stage.
    """

    def __init__(self, forker: Forker) -> None:
        self.stage = ""
        self.bytes: dict[str, dict[int, int]] = defaultdict(dict)
        self._forker = psutil.Process(forker.pid)
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        with suppress(psutil.NoSuchProcess):
            while True:
                for rank, pid in enumerate(sorted(child.pid for child in self._forker.children())):
                    taken, peaks = _private_bytes(pid), self.bytes[self.stage]
                    peaks[rank] = max(peaks.get(rank, 0), taken)
                time.sleep(PERIOD_S)

    def train(self, name: str, forker: Forker, job: Job, folder: Path, prepare: str = "") -> list[str]:
        """Train `job` in the subfolder `name` of `folder`, and return the texts in the log.

        The stages are named "NAME: PHASE". `prepare` names a function ("module:function") that the workers call before
        they train, or is "".
        """

        def note(_: int, message: Any) -> bool:
            if isinstance(message, PhaseChanged | StepMetrics):
                phase = message.phase if isinstance(message, PhaseChanged) else "training"
                self.stage = f"{name}: {phase}"
            return False

        self.stage = f"{name}: preparing"
        group = WorkerGroup(forker, job, folder / name, every_step=True, prepare=prepare)
        group.read(note, 600)
        if any(group.wait_for_exit_codes()):
            raise SystemExit(f"{group.of(Failed)}\n{group.logs()}")
        group.close()
        return [line.text for line in group.of(LogLine)]


def _private_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def wait_for_ranks(_spec: WorkerSpec) -> None:
    """Make the worker wait before training until all ranks are ready. Otherwise, the stages of ranks would overlap.

    Called in each worker before its preparations.
    """
    run = Trainer.run

    def run_together(trainer: Trainer) -> WorkerDone:
        trainer.strategy.collectives.all_reduce_max([0])
        return run(trainer)

    Trainer.run = run_together  # type: ignore[method-assign, assignment]


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--strategy", nargs="+", default=["fsdp"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--model", default="vit_b_16")
    chosen = parser.parse_args()
    print(describe_environment())
    with use_empty_home() as folder, closing(Forker()) as forker:
        excesses = [
            measure(forker, folder / f"{strategy}-{ranks}", strategy, ranks, chosen.model)
            for strategy in chosen.strategy
            for ranks in chosen.ranks
        ]
    return int(max(excesses) > AIM)


def measure(forker: Forker, folder: Path, strategy: str, ranks: int, model: str) -> float:
    """Train a model, resume it from its checkpoint, and print the memory that validation, saving and resuming add.

    Returns the largest addition on a rank other than 0, without the size of the largest tensor, as a multiple of the
    state that a rank holds.
    """
    job = Job.from_fields(
        dataset=str(make_images(folder / "images", 8 + 8 * ranks, 32, ".bmp")),
        model=model,
        image_size=32,
        batch_size=2 * ranks,
        devices=("cpu",) * ranks,
        strategy=strategy,
        optimizer="adamw",
        ema_decay=0.9,
        epochs=1,
        predictions=0,
        cpu_threads=1,
        precision="fp32",
        memory_format="contiguous",
    )
    peaks = PeakMemory(forker)
    texts = peaks.train("first", forker, job, folder, WAIT)
    last = folder / "first/checkpoints/last.pt"
    peaks.train("resumed", forker, job.with_fields(epochs=2, resume_from=str(last)), folder, WAIT)
    peaks.stage = "done"
    layer, shard, optimizer = _compute_sizes(last, strategy, ranks, texts)
    print(f"{strategy}, {model}, {ranks} ranks: shard {shard / MIB:.0f} MiB, layer {layer / MIB:.0f} MiB")
    # The optimizer's state exists only after the first step, or after a resume.
    resumed = {rank: taken + optimizer for rank, taken in peaks.bytes["first: preparing"].items()}
    worst = 0.0
    for title, stage, before in (
        ("validation", "first: validating", peaks.bytes["first: training"]),
        ("checkpoint", "first: saving", peaks.bytes["first: validating"]),
        ("resume", "resumed: preparing", resumed),
    ):
        extra = {rank: max(0, taken - before.get(rank, 0)) for rank, taken in peaks.bytes[stage].items()}
        print(f"{title:<11}", "  ".join(f"rank {rank}: +{taken / MIB:.0f} MiB" for rank, taken in extra.items()))
        worst = max([worst, *((taken - layer) / shard for rank, taken in extra.items() if rank)])
    print(f"{strategy} x {ranks}: {worst:.2f}")
    return worst


def _compute_sizes(checkpoint: Path, strategy: str, ranks: int, texts: Sequence[str]) -> tuple[int, int, int]:
    """Compute the bytes of the largest tensor, of the state that a rank holds, and of its optimizer's state.

    ZeRO-1 divides the state of the optimizer and the averages among the ranks. FSDP divides everything. Tensor
    parallelism divides a percentage of the parameters, which is read from `texts`, the messages in the log.
    """
    content, _ = read_checkpoint(checkpoint)
    sizes = [each.nbytes for each in content["model"].values() if isinstance(each, torch.Tensor)]
    complete, model = checkpoint.stat().st_size, sum(sizes)
    if strategy == "zero1":
        return max(sizes), model + (complete - model) // ranks, 2 * model // ranks
    percent = next((int(found[1]) for text in texts if (found := _DIVIDED.search(text))), 100)
    share = percent / 100 / ranks + 1 - percent / 100
    return max(sizes), int(complete * share), int(2 * model * share)


if __name__ == "__main__":
    sys.exit(main())
