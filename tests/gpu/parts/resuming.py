"""Deterministic runs that are stopped and resumed. The result must be bit-exact."""

from __future__ import annotations

from functools import partial
from typing import Any

from engine.contract.events import StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Stop
from tests.gpu.checks import CheckContext, run_checks
from tests.gpu.jobs import write_class_folders
from tests.support.same_states import find_differences
from tests.support.worker_group import WorkerGroup

EVERYTHING: dict[str, Any] = {
    "model": "mobilenet_v3_small",  # the model has dropout and BatchNorm
    "image_size": 32, "batch_size": 12, "accumulation": 2, "epochs": 2, "optimizer": "adamw", "learning_rate": 0.002,
    "schedule": "onecycle", "clip_norm": 0.5, "ema_decay": 0.8, "augmentation": "light", "deterministic": True,
    "compile": "off", "memory_format": "contiguous",
}  # fmt: skip
STOPPED_AFTER = 4


def check_resume(context: CheckContext, *, strategy: str, precision: str, runs_on_cpu: bool) -> None:
    """Stop a run after some steps, resume it, and compare the result with that of an uninterrupted run.

    If `runs_on_cpu` is False, this check is skipped when the GPU checks are rehearsed on the CPU.
    """
    if not runs_on_cpu:
        context.require_gpu(f"{strategy} in {precision} isn't rehearsed")
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 21})
    job = Job.from_fields(
        dataset=str(data), strategy=strategy, precision=precision, devices=(context.gpu,), **EVERYTHING
    )
    uninterrupted = context.run(job)
    first = context.start(job, every_step=True)
    first.read_steps(STOPPED_AFTER)
    first.send(Stop(), 0)
    first.completed(120)
    stopped = first.of(StepMetrics)[-1].step
    rest = context.run(_resumed(job, first))
    name = f"{strategy}, {precision}"
    context.claim(f"{name}: losses equal those of an uninterrupted run", rest.losses == uninterrupted.losses[stopped:],
                f"stopped after step {stopped} of {len(uninterrupted.losses)}")  # fmt: skip
    off = find_differences(_content(rest), _content(uninterrupted))
    context.measure(f"{name}: tensors and numbers that differ in the last checkpoint", len(off), "", at_most=0, anywhere=True,
                  text=", ".join(off[:4]))  # fmt: skip


def _resumed(job: Job, group: WorkerGroup) -> Job:
    return job.with_fields(resume_from=str(group.folder / "checkpoints/last.pt"))


def _content(group: WorkerGroup) -> dict[str, Any]:
    content: dict[str, Any] = group.checkpoint()
    content["job"].pop("resume_from")
    return content


CASES = (
    ("single", "fp32", True),
    ("single", "bf16", False),
    ("single", "fp16", False),
    ("ddp", "bf16", False),
    ("fsdp", "fp32", False),
)


def main() -> None:
    run_checks({
        f"{strategy} in {precision}": (partial(check_resume, strategy=strategy, precision=precision, runs_on_cpu=runs_on_cpu), 75)
        for strategy, precision, runs_on_cpu in CASES
    })  # fmt: skip


if __name__ == "__main__":
    main()
