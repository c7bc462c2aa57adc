"""Strategies for several devices on one GPU: DataParallel's replicas, and two ranks over gloo.

The part "tests" covers single-device training, and DDP and FSDP over NCCL with one rank.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.contract.job import Job
from tests.gpu.hooks import recorded
from tests.gpu.jobs import SMALL, by_class, model_file
from tests.gpu.proof import CheckContext, prove

TOLERANCE = 2e-2
"""Relative tolerance of fp32 losses. They differ because sums are in another order and convolutions may use TF32."""
ON_ONE_CARD = "tests.gpu.hooks:on_one_card"
NOTE_DTYPES = "tests.gpu.hooks:note_dtypes_on_one_card"


def _fields(proof: CheckContext) -> dict[str, Any]:
    data = by_class(proof.folder / "data", {"train": 72, "val": 21})
    return {
        "dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 2, "learning_rate": 0.02, "precision": "fp32",
        "compile": "off", "memory_format": "contiguous", **model_file(SMALL, proof.folder),
    }  # fmt: skip


def _max_relative_difference(found: list[float], expected: list[float]) -> float:
    """Return the maximum relative difference from the expected losses."""
    return max(abs(one - other) / max(abs(other), 0.1) for one, other in zip(found, expected, strict=True))


def replicas(proof: CheckContext) -> None:
    """Check that DataParallel's losses match those of a single device that splits batches into as many chunks."""
    proof.needs_card("DataParallel needs CUDA")
    fields = _fields(proof)
    alone = proof.run(Job.from_fields(**fields, devices=(proof.gpu,), accumulation=2)).losses
    found = proof.run(Job.from_fields(**fields, devices=(proof.gpu,) * 2, strategy="dp"), prepare=ON_ONE_CARD).losses
    proof.measure(
        "DataParallel with two replicas: maximum relative difference from losses of one device",
        _max_relative_difference(found, alone),
        "",
        at_most=TOLERANCE,
        anywhere=True,
    )


def dtype_of_replicas(proof: CheckContext) -> None:
    """Check that autocast's dtype also applies in the threads that run DataParallel's replicas."""
    proof.needs_card("DataParallel needs CUDA")
    fields = _fields(proof) | {"precision": "bf16"}
    group = proof.run(Job.from_fields(**fields, devices=(proof.gpu,) * 2, strategy="dp"), prepare=NOTE_DTYPES)
    dtypes = recorded(group.folder)
    on_card = {found for found in dtypes if found.startswith("cuda")}  # the sizes within a model are found on the CPU
    proof.claim("replicas compute in bf16 as the job requests", on_card == {"cuda:0 torch.bfloat16"}, str(dtypes))


def ranks(proof: CheckContext, *, strategy: str) -> None:
    """Check that the losses of two ranks on the GPU match those of two ranks on the CPU."""
    fields = _fields(proof)
    on_cpu = proof.run(Job.from_fields(**fields, devices=("cpu", "cpu"), strategy=strategy)).losses
    found = proof.run(
        Job.from_fields(**fields, devices=(proof.gpu,) * 2, strategy=strategy), prepare=ON_ONE_CARD
    ).losses
    proof.measure(
        f"{strategy} with two ranks: maximum relative difference from losses of two CPU workers",
        _max_relative_difference(found, on_cpu),
        "",
        at_most=TOLERANCE,
        anywhere=True,
    )


def main() -> None:
    prove({
        "replicas": (replicas, 60),
        "dtype of replicas": (dtype_of_replicas, 60),
        "two ranks, DDP": (partial(ranks, strategy="ddp"), 90),
        "two ranks, FSDP": (partial(ranks, strategy="fsdp"), 90),
    })  # fmt: skip


if __name__ == "__main__":
    main()
