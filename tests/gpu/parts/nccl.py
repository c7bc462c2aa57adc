"""Strategies over NCCL, and faults of ranks during NCCL's operations.

With `--devices all`, each rank has a GPU. Otherwise all ranks share one GPU, and each pretends to be another host
(`NCCL_HOSTID`), because NCCL doesn't permit two ranks of a host on the same GPU. They then communicate over sockets, so
peer-to-peer transfers and shared memory are not tested.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import psutil

from engine.contract.events import Failed
from engine.contract.job import Job
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.gpu.jobs import SMALL, write_class_folders, write_model_file
from tests.support.worker_group import WorkerGroup

TOLERANCE = 2e-2
"""Relative tolerance of fp32 losses. They differ because sums are in another order and convolutions may use TF32."""
ON_ONE_CARD = "tests.gpu.hooks:use_one_gpu_over_nccl"
GONE_S = 5.0
"""Seconds within which workers must exit after SIGKILL."""
EXHAUSTING_STEP = 8
EXHAUSTING = f"""
import torch
from torch import distributed, nn

class Exhausting(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, num_classes)
        self.steps = 0

    def forward(self, x):
        self.steps += self.training
        if self.steps > {EXHAUSTING_STEP} and distributed.get_rank() == 1:
            torch.empty(1 << 50, device=x.device)
        return self.head(self.layers(x))

def build_model(num_classes):
    return Exhausting(num_classes)
"""
"""Source of a model that allocates a pebibyte on rank 1."""

DIVISIBLE = {"model": "mobilenet_v3_small", "image_size": 32, "batch_size": 36, "model_file_sha256": ""}
"""Job fields for a model that tensor parallelism can split."""
PIPELINE = {"strategy": "pipeline", "microbatches": 4, "batch_size": 16}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (2, {"strategy": "ddp"}),
    "fsdp": (2, {"strategy": "fsdp"}),
    "zero1": (2, {"strategy": "zero1"}),
    "pipeline 1f1b": (2, {**PIPELINE, "pipeline_schedule": "1f1b"}),
    "tp": (2, {"strategy": "tp", **DIVISIBLE}),
    "model_parallel": (2, {"strategy": "model_parallel"}),
    "ddp with accumulation, EMA and clipping": (
        2, {"strategy": "ddp", "accumulation": 2, "ema_decay": 0.9, "clip_norm": 1.0},
    ),
    "ddp with SyncBatchNorm": (2, {"strategy": "ddp", "sync_batchnorm": True}),
    "hsdp": (4, {"strategy": "hsdp", "replicas": 2}),
    "ddp_pipeline": (4, {**PIPELINE, "strategy": "ddp_pipeline", "replicas": 2, "pipeline_schedule": "1f1b", "microbatches": 2}),
    "fsdp_tp": (4, {"strategy": "fsdp_tp", "replicas": 2, **DIVISIBLE}),
    **{
        f"pipeline {name}": (2, {**PIPELINE, "pipeline_schedule": name})
        for name in ("interleaved_1f1b", "zb1p", "zbv")
    },
}  # fmt: skip
"""Number of ranks and job fields for each case. The most common strategies come first."""


def _fields(context: CheckContext) -> dict[str, Any]:
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 21})
    return {
        "dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 2, "learning_rate": 0.02, "precision": "fp32",
        "predictions": 0, "compile": "off", "memory_format": "contiguous", "cpu_threads": 1, "loader_workers": 1,
        **write_model_file(SMALL, context.folder),
    }  # fmt: skip


def _start(context: CheckContext, ranks: int, **fields: Any) -> WorkerGroup:
    """Start the workers of a job with `ranks` ranks and these `fields`, which communicate over NCCL."""
    devices = context.ranks(ranks)
    prepare = ON_ONE_CARD if len(set(devices)) < ranks else ""
    return context.start(Job.from_fields(**fields, devices=devices), prepare=prepare, every_step=True)


def compare_losses(context: CheckContext, *, name: str) -> None:
    """Compare the losses of a strategy over NCCL with those of CPU workers, and check that it can resume.

    `name` is a key of `CASES`. SyncBatchNorm runs on GPUs only, so its reference is a single CPU worker with the full
    batch.
    """
    ranks, changes = CASES[name]
    fields = _fields(context) | changes
    on_cpu = fields | {"devices": ("cpu",) * ranks}
    if fields.get("sync_batchnorm"):
        context.require_gpu("SyncBatchNorm runs on GPUs only")
        on_cpu |= {"strategy": "single", "sync_batchnorm": False, "devices": ("cpu",)}
    reference = context.start(Job.from_fields(**on_cpu), every_step=True)
    group = _start(context, ranks, **fields).completed(40)
    reference.completed(40)
    difference = max(
        abs(loss - expected) / max(abs(expected), 0.1)
        for loss, expected in zip(group.losses, reference.losses, strict=True)
    )
    context.measure(
        f"{name}, {ranks} ranks: maximum relative difference from losses of CPU workers", difference, "", at_most=TOLERANCE, anywhere=True
    )  # fmt: skip
    resumed = fields | {"epochs": 3, "resume_from": str(group.folder / "checkpoints/last.pt")}
    further = _start(context, ranks, **resumed).completed(40)
    context.claim(f"{name}: resumes from its checkpoint", len(further.losses) == len(group.losses) // 2)


def inject_fault(context: CheckContext, *, number: signal.Signals) -> None:
    """Send signal `number` to rank 1 while rank 0 waits for it in NCCL.

    Reports whether rank 0 notices the failure, and how long both processes take to exit when they are killed.
    """
    context.require_gpu("the fault occurs inside an NCCL kernel")
    group, workers = _start_long(context)
    group.read_steps(5)
    workers[1].send_signal(number)
    sent_at = time.monotonic()
    with suppress(TimeoutError):
        group.read(lambda rank, message: rank == 0 and isinstance(message, Failed), 20)
    causes = "; ".join(failed.cause for failed in group.of(Failed))
    context.measure(
        f"{number.name} of rank 1: rank 0 reports it after", time.monotonic() - sent_at, "s", text=causes[:300]
    )
    _kill(context, workers, f"{number.name} of rank 1")


def check_exhausted_memory(context: CheckContext) -> None:
    """Make rank 1 alone run out of memory while rank 0 waits for it in NCCL, and check that the run reports it."""
    folder = context.folder / "exhausting"
    folder.mkdir()
    group, workers = _start_long(context, **write_model_file(EXHAUSTING, folder))
    group.read_steps(EXHAUSTING_STEP - 2)
    started = time.monotonic()
    with suppress(TimeoutError):
        group.read(lambda rank, message: rank == 1 and isinstance(message, Failed), 20)
    failures = [failed for rank, failed in group.messages if rank == 1 and isinstance(failed, Failed)]
    reported = bool(failures) and failures[0].kind == "out_of_memory"
    cause = failures[0].cause if failures else "no report"
    context.claim("only rank 1 runs out of memory: reported", reported, cause[:300])
    context.measure("only rank 1 runs out of memory: reported after", time.monotonic() - started, "s", at_most=10)
    _kill(context, workers, "only rank 1 runs out of memory")


def _start_long(context: CheckContext, **fields: Any) -> tuple[WorkerGroup, list[psutil.Process]]:
    """Start a DDP run with two ranks and too many epochs to finish. Return its group and its worker processes by rank.

    `fields` override fields of the job.
    """
    before = set(psutil.Process().children(recursive=True))
    group = _start(context, 2, **_fields(context) | {"epochs": 10_000, "strategy": "ddp"} | fields)
    started = (process for process in psutil.Process().children(recursive=True) if process not in before)
    return group, sorted(started, key=lambda process: process.pid)[-2:]


def _kill(context: CheckContext, workers: Sequence[psutil.Process], fault: str) -> None:
    """Kill the workers after `fault`, and report how many seconds they take to exit."""
    killed_at = time.monotonic()
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    psutil.wait_procs(workers, 20)
    context.measure(f"{fault}: both exit after SIGKILL in", time.monotonic() - killed_at, "s", at_most=GONE_S)


def check_communication(context: CheckContext) -> None:
    """Train with DDP on two ranks for a few steps.

    If a rank fails, the two can't communicate on this machine. NCCL's log is then added to the report, and the check is
    skipped.
    """
    context.require_gpu("NCCL runs on GPUs only")
    group = _start(context, 2, **_fields(context) | {"strategy": "ddp"})
    if any(group.finish(60)):
        context.add_file("nccl.txt", group.logs())
        raise Skipped("two ranks can't communicate over NCCL here; nccl.txt has its log")
    context.claim("DDP of two ranks over NCCL trains", len(group.losses) == 12)


def main() -> None:
    run_checks({
        "smoke": (check_communication, 70),
        **{name: (partial(compare_losses, name=name), 60) for name in CASES},
        "a rank is killed": (partial(inject_fault, number=signal.SIGKILL), 40),
        "a rank is stopped": (partial(inject_fault, number=signal.SIGSTOP), 45),
        "one rank runs out of memory": (check_exhausted_memory, 45),
    })  # fmt: skip


if __name__ == "__main__":
    main()
