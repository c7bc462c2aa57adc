"""Checks of fp32, bf16 and fp16 training, of the automatic choice, and of fp16's loss scaling."""

from __future__ import annotations

import torch

from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies import STRATEGIES
from engine.strategies.base import NATIVE_BF16, ResolvedJob, Strategy, resolve_precision
from tests.gpu.checks import CheckContext, run_checks
from tests.gpu.jobs import write_class_folders, write_model_file
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec

LOUD = """
from torch import nn

class Louder(nn.Module):
    def forward(self, x):
        return x * 8

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2304, 32), nn.Tanh(),
        nn.Linear(32, num_classes), Louder())
"""
"""Source of a network whose fp16 gradients overflow with the initial loss scale."""
TOLERANCE = {"fp32": 2e-2, "bf16": 1e-1, "fp16": 2e-2}
"""Relative tolerance of losses compared with fp32 on the CPU.

They differ because sums are in another order. TF32 and fp16 have 11 significant bits, bf16 has 8.
"""


def check_automatic_precision(context: CheckContext) -> None:
    precision = resolve_precision(Job.from_fields(devices=(context.gpu,)))
    expected = "fp32" if context.rehearsing or torch.cuda.get_device_capability() < NATIVE_BF16 else "bf16"
    context.claim("automatic precision", precision == expected, precision)


def compare_losses(context: CheckContext) -> None:
    """Compare the losses of training in each precision with those of fp32 on the CPU."""
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 6})
    small = write_model_file(LOUD.replace("x * 8", "x"), context.folder)
    fields = {"dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 4, "compile": "off", **small}
    on_cpu = context.run(Job.from_fields(**fields, precision="fp32")).losses
    for precision, tolerance in TOLERANCE.items():
        found = context.run(Job.from_fields(**fields, precision=precision, devices=(context.gpu,))).losses
        off = max(abs(one - other) / max(abs(other), 0.1) for one, other in zip(found, on_cpu, strict=True))
        context.measure(
            f"{precision}: maximum relative difference of {len(found)} losses from the CPU",
            off,
            "",
            at_most=tolerance,
            anywhere=True,
        )


def check_overflow(context: CheckContext) -> None:
    """Check that a step with an infinite loss only lowers the loss scale, and that the next step trains."""
    torch.manual_seed(0)
    strategy, optimizer_step = _create_strategy(context)
    batch = Batch(
        torch.rand(12, 3, 16, 16, device=context.device), torch.arange(12, device=context.device) % 3, 12, 0.0
    )
    strategy.step(batch, optimizer_step)
    before = {name: tensor.clone() for name, tensor in strategy.model.state_dict().items()}
    held = optimizer_step.state_dict()
    optimizer_step.load_state_dict(held | {"scaler": held["scaler"] | {"scale": 2.0**126}})
    strategy.step(batch, optimizer_step)
    same = all(torch.equal(tensor, before[name]) for name, tensor in strategy.model.state_dict().items())
    scale = optimizer_step.state_dict()["scaler"]["scale"]
    context.claim("fp16: an overflowing step doesn't change the weights", same)
    context.claim("fp16: an overflowing step halves the loss scale", scale == 2.0**125, f"2^126 to {scale:g}")
    optimizer_step.load_state_dict(held)
    strategy.step(batch, optimizer_step)
    moved = not all(torch.equal(tensor, before[name]) for name, tensor in strategy.model.state_dict().items())
    context.claim("fp16: the next step changes the weights", moved)


def _create_strategy(context: CheckContext) -> tuple[Strategy, OptimizerStep]:
    """Create the strategy of a single fp16 worker, which contains a small model, and the model's optimizer step."""
    job = Job.from_fields(precision="fp16", image_size=16, batch_size=12, schedule="none", devices=(context.gpu,))
    spec = make_worker_spec(job)
    strategy = STRATEGIES["single"](spec)
    strategy.setup()
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(1568, 3))
    strategy.wrap(model, make_classification_objective(3), (3, 16, 16), ResolvedJob(job))
    return strategy, OptimizerStep(strategy.parameters(), job, 100, strategy.device)


def check_initial_overflow(context: CheckContext) -> None:
    """Check that a run whose first steps overflow in fp16 finds a loss scale and learns."""
    data = write_class_folders(context.folder / "data", {"train": 72, "val": 6})
    job = Job.from_fields(
        dataset=str(data), image_size=16, batch_size=12, epochs=4, compile="off", precision="fp16", clip_norm=0.5,
        learning_rate=0.002, devices=(context.gpu,), **write_model_file(LOUD, context.folder),
    )  # fmt: skip
    group = context.run(job)
    found = group.checkpoint()["optimizer"]["scaler"]["scale"]
    context.measure(
        "fp16: loss scale after 24 steps, the first of which overflow", found, "", at_most=65535, anywhere=True
    )
    before, after = sum(group.losses[:6]) / 6, sum(group.losses[-6:]) / 6
    context.claim("fp16: the loss decreases", after < 0.9 * before, f"loss {before:.2f} to {after:.2f}")


def main() -> None:
    run_checks({
        "automatic precision": (check_automatic_precision, 30),
        "losses": (compare_losses, 120),
        "forced overflow": (check_overflow, 60),
        "loss scale of a run": (check_initial_overflow, 60),
    })  # fmt: skip


if __name__ == "__main__":
    main()
