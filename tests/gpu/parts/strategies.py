"""Strategies for several devices on one GPU: DataParallel's replicas, and two ranks over gloo.

The part "tests" covers single-device training, and DDP and FSDP over NCCL with one rank.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.contract.job import Job
from tests.gpu.checks import CheckContext, run_checks
from tests.gpu.hooks import read_record
from tests.gpu.jobs import SMALL, write_class_folders, write_model_file

TOLERANCE = 2e-2
"""Relative tolerance of fp32 losses. They differ because sums are in another order and convolutions may use TF32."""
ON_ONE_CARD = "tests.gpu.hooks:use_one_gpu"
NOTE_DTYPES = "tests.gpu.hooks:record_dtypes_on_one_gpu"


def _fields(context: CheckContext) -> dict[str, Any]:
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 21})
    return {
        "dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 2, "learning_rate": 0.02, "precision": "fp32",
        "compile": "off", "memory_format": "contiguous", **write_model_file(SMALL, context.folder),
    }  # fmt: skip


def _compute_max_relative_difference(found: list[float], expected: list[float]) -> float:
    """Return the maximum relative difference from the expected losses."""
    return max(abs(one - other) / max(abs(other), 0.1) for one, other in zip(found, expected, strict=True))


def compare_replicas(context: CheckContext) -> None:
    """Check that DataParallel's losses match those of a single device that splits batches into as many chunks."""
    context.require_gpu("DataParallel needs CUDA")
    fields = _fields(context)
    alone = context.run(Job.from_fields(**fields, devices=(context.gpu,), accumulation=2)).losses
    found = context.run(
        Job.from_fields(**fields, devices=(context.gpu,) * 2, strategy="dp"), prepare=ON_ONE_CARD
    ).losses
    context.measure(
        "DataParallel with two replicas: maximum relative difference from losses of one device",
        _compute_max_relative_difference(found, alone),
        "",
        at_most=TOLERANCE,
        anywhere=True,
    )


def check_replica_dtype(context: CheckContext) -> None:
    """Check that autocast's dtype also applies in the threads that run DataParallel's replicas."""
    context.require_gpu("DataParallel needs CUDA")
    fields = _fields(context) | {"precision": "bf16"}
    group = context.run(Job.from_fields(**fields, devices=(context.gpu,) * 2, strategy="dp"), prepare=NOTE_DTYPES)
    dtypes = read_record(group.folder)
    on_card = {found for found in dtypes if found.startswith("cuda")}  # the sizes within a model are found on the CPU
    context.claim("replicas compute in bf16 as the job requests", on_card == {"cuda:0 torch.bfloat16"}, str(dtypes))


def compare_ranks(context: CheckContext, *, strategy: str) -> None:
    """Check that the losses of two ranks on the GPU match those of two ranks on the CPU."""
    fields = _fields(context)
    on_cpu = context.run(Job.from_fields(**fields, devices=("cpu", "cpu"), strategy=strategy)).losses
    found = context.run(
        Job.from_fields(**fields, devices=(context.gpu,) * 2, strategy=strategy), prepare=ON_ONE_CARD
    ).losses
    context.measure(
        f"{strategy} with two ranks: maximum relative difference from losses of two CPU workers",
        _compute_max_relative_difference(found, on_cpu),
        "",
        at_most=TOLERANCE,
        anywhere=True,
    )


def main() -> None:
    run_checks({
        "replicas": (compare_replicas, 60),
        "dtype of replicas": (check_replica_dtype, 60),
        "two ranks, DDP": (partial(compare_ranks, strategy="ddp"), 90),
        "two ranks, FSDP": (partial(compare_ranks, strategy="fsdp"), 90),
    })  # fmt: skip


if __name__ == "__main__":
    main()
