"""NaN and infinite losses and gradients: skipped steps, rollback, and states that must not be saved."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.events import (
    CheckpointSaved,
    EpochStarted,
    Failed,
    Planned,
    StepMetrics,
    Validation,
    Warned,
)
from engine.contract.job import Job
from tests.support.same_states import find_differences

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

SPOILED = """
import torch
from torch import nn

class Spoilt(nn.Module):
    '''A white image makes NaN of what comes in, of the loss alone, or of the gradients alone.'''
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), {norm}, nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, classes))

    def forward(self, x):
        white = x.amin((1, 2, 3), keepdim=True) > {white}
        {spoil}
        return y

def build_model(num_classes):
    return Spoilt(num_classes)
"""
SPOILING = {
    "input": "y = self.layers(torch.where(white, float('nan'), x))",
    "loss": "y = torch.where(white.flatten(1), float('nan'), self.layers(x))",
    "gradient": "y = self.layers(x); y = y + torch.where(white.flatten(1), y * 0, torch.ones_like(y)).sqrt()",
}
STEPS = 6


@pytest.fixture
def spoiled_images(images: Path, tmp_path: Path) -> Path:
    """Copy the images, and replace one of them by a white image."""
    folder = tmp_path / "spoiled"
    shutil.copytree(images, folder)
    Image.new("RGB", (16, 16), (255, 255, 255)).save(folder / "train/green/5.png")
    return folder


@pytest.fixture
def spoiled_job(job: Make, model_file: Write, spoiled_images: Path) -> Make:
    """Return a function that creates jobs whose model produces NaN for the white image.

    `spoil` determines where NaN occurs first: in the "input", the "loss" or the "gradient". `norm` adds BatchNorm. With
    `always`, this happens for every image.
    """

    def make(spoil: str, *, norm: bool = True, always: bool = False, **fields: Any) -> Job:
        layer, white = ("nn.BatchNorm2d(4)" if norm else "nn.Identity()"), "-100.0" if always else "1.5"
        text = SPOILED.format(norm=layer, white=white, spoil=SPOILING[spoil])
        return job(**{"dataset": str(spoiled_images), "epochs": 2, "loader_workers": 1} | fields, **model_file(text))

    return make


def _list_warnings(group: Any, code: str) -> list[str]:
    return [warning.message for warning in group.of(Warned) if warning.code == code]


def _list_missing_steps(group: Any) -> list[int]:
    """Return the steps in the first two epochs that rank 0 didn't report."""
    return sorted(set(range(1, 2 * STEPS + 1)) - {metrics.step for metrics in group.of(StepMetrics)})


def _is_finite(content: dict[str, Any]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in content["model"].values())


def _rates(group: Any) -> dict[int, float]:
    return {metrics.step: metrics.learning_rate for metrics in group.of(StepMetrics)}


@pytest.mark.parametrize("spoil", ["input", "gradient", pytest.param("loss", marks=pytest.mark.long)])
def test_skipped_step_only_moves_the_schedule(spoiled_job: Make, start: Start, spoil: str) -> None:
    fields = {"optimizer": "adamw", "ema_decay": 0.9, "checkpoint_steps": 1, "keep_checkpoints": 100}
    group = start(spoiled_job(spoil, on_not_finite="skip", **fields), every_step=True).completed()
    first, second = _list_missing_steps(group)
    assert first <= STEPS < second
    assert _list_warnings(group, "step_skipped") == [
        f"Skipping step {step}: its loss or a gradient is NaN or infinite. The weights are unchanged."
        for step in (first, second)
    ]
    assert all(map(math.isfinite, group.losses))
    name = f"epoch-2-step-{second - 1}.pt"
    before, after = group.checkpoint(name), group.checkpoint(f"epoch-2-step-{second}.pt")
    for key in ("model", "optimizer"):
        one, other = before[key], after[key]
        if key == "optimizer":
            assert other.pop("schedule") == one.pop("schedule") + 1 == second
        assert not find_differences(one, other)
    # The run that passes over the second of them is this one from there on.
    resumed = spoiled_job(spoil, resume_from=str(group.folder / "checkpoints" / name), **fields)
    passed = start(resumed, every_step=True, skip_to=second).completed()
    assert passed.losses == group.losses[second - 2 :]
    assert _rates(passed) == {step: rate for step, rate in _rates(group).items() if step > second}
    assert [event.measures for event in passed.of(Validation)] == [event.measures for event in group.of(Validation)][1:]


@pytest.mark.parametrize(
    ("strategy", "cpus", "spoil"),
    [
        ("ddp", 2, "loss"),
        pytest.param("pipeline", 2, "input", marks=pytest.mark.long),
        pytest.param("ddp", 2, "gradient", marks=pytest.mark.long),
        pytest.param("fsdp", 2, "loss", marks=pytest.mark.long),
        pytest.param("fsdp", 2, "gradient", marks=pytest.mark.long),
        pytest.param("model_parallel", 2, "input", marks=pytest.mark.long),
        pytest.param("hsdp", 4, "loss", marks=pytest.mark.long),
        pytest.param("ddp_pipeline", 4, "input", marks=pytest.mark.long),
    ],
)
def test_ranks_skip_the_same_steps(spoiled_job: Make, start: Start, strategy: str, cpus: int, spoil: str) -> None:
    norm = spoil == "input"  # as statistics see it, in microbatches under a pipeline
    single = start(spoiled_job(spoil, norm=norm, on_not_finite="skip"), every_step=True).completed()
    fields = {"microbatches": 3} if "pipeline" in strategy else {}
    job = spoiled_job(spoil, norm=norm, on_not_finite="skip", strategy=strategy, cpus=cpus, **fields)
    group = start(job, every_step=True).completed()
    assert len(_list_missing_steps(single)) == 2
    assert _list_missing_steps(group) == _list_missing_steps(single)
    assert len(_list_warnings(group, "step_skipped")) == 2
    assert _is_finite(group.checkpoint())
    assert group.losses == pytest.approx(single.losses, rel=0.5 if norm else 1e-4)
    if not norm:
        assert group.done.best == pytest.approx(single.done.best, rel=1e-4)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_too_many_skipped_steps_fail_the_run(spoiled_job: Make, start: Start, strategy: str, cpus: int) -> None:
    fields = {"strategy": strategy, "cpus": cpus, "on_not_finite": "skip", "batch_size": 6}
    group = start(spoiled_job("loss", always=True, **fields))
    assert group.finish() == [1] * cpus
    assert len(_list_warnings(group, "step_skipped")) == 10
    for failed in group.of(Failed):
        assert (failed.kind, failed.step) == ("not_finite", 11)
        assert failed.cause.startswith(
            "After 10 skipped steps in a row, the loss or a gradient became NaN or infinite at step 11. "
        )


def test_rollback_skips_nonfinite_step(spoiled_job: Make, start: Start) -> None:
    fields = {"checkpoint_steps": 1, "on_not_finite": "roll_back", "schedule": "step", "learning_rate": 0.01, "seed": 1}
    group = start(spoiled_job("loss", **fields), prepare="tests.support.impatience:never_report_for_time")
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert failed.kind == "not_finite"
    assert failed.step is not None
    assert 1 < failed.step < STEPS
    saved = group.checkpoint()["step"]
    assert saved == failed.step - 1
    assert not _list_warnings(group, "checkpoint_not_finite"), "the loss was read before a checkpoint was attempted"
    # Up to the middle of the second epoch, over the white image in it, too.
    again = start(
        spoiled_job("loss", **fields, resume_from=str(group.folder / "checkpoints/last.pt")), every_step=True,
        skip_to=2 * STEPS - 1,
    ).completed()  # fmt: skip
    assert again.of(Planned)[0].from_step == saved
    assert [event.epoch for event in again.of(EpochStarted)] == [1, 2]
    assert [(event.epoch, event.step) for event in again.of(Validation)] == [(1, STEPS), (2, 2 * STEPS)]
    assert [metrics.step for metrics in again.of(StepMetrics)] == [2 * STEPS]
    first = "step 6" if saved + 1 == STEPS else f"steps {saved + 1} to 6"
    assert _list_warnings(again, "steps_passed_over") == [
        f"Skipping {steps}: non-finite loss" for steps in (first, "steps 7 to 11")
    ]
    assert _rates(again) == {2 * STEPS: pytest.approx(0.001)}
    assert (again.checkpoint()["epoch"], again.checkpoint()["step"]) == (2, 2 * STEPS)


def test_nonfinite_state_is_not_saved(spoiled_job: Make, start: Start) -> None:
    """Make the weights infinite in a step with a finite loss, just before a checkpoint."""
    fields = {"checkpoint_steps": 1, "keep_checkpoints": 100, "seed": 1}
    group = start(spoiled_job("gradient", **fields), every_step=True)
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert failed.step is not None
    step = failed.step - 1
    assert step > 1
    (warning,) = _list_warnings(group, "checkpoint_not_finite")
    assert warning.startswith(f"last.pt was not updated: after step {step}, model.layers.")
    assert [saved.step for saved in group.of(CheckpointSaved) if saved.kind == "last"][-1] == step - 1
    names = [path.name for path in (group.folder / "checkpoints").iterdir()]
    assert "last.pt" in names
    assert group.checkpoint()["step"] == step - 1
    assert all(_is_finite(group.checkpoint(name)) for name in names if name != "best.pt")


MASKED = """
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
        self.register_buffer("spoilt", torch.zeros(1))
        self.trained = False

    def forward(self, x):
        self.trained |= self.training
        if {spoils} and self.trained:
            self.spoilt.fill_(float("nan"))
        return self.layer(x.flatten(1))

def build_model(num_classes):
    return Masked(num_classes)
"""


def test_infinite_buffers_are_saved_if_intended(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(epochs=2, **model_file(MASKED.format(spoils=False)))).completed()
    assert not group.of(Warned)
    assert {saved.kind for saved in group.of(CheckpointSaved)} == {"last", "best"}
    group = start(job(epochs=2, **model_file(MASKED.format(spoils=True)))).completed()
    warnings = _list_warnings(group, "checkpoint_not_finite")
    assert {message.partition(" ")[0] for message in warnings} == {"last.pt", "best.pt"}
    assert all("spoilt contains NaN" in message for message in warnings)
    assert not group.of(CheckpointSaved)
    assert group.done.best == {}
    assert not list((group.folder / "checkpoints").iterdir())


ILL_MEASURED = """
from torch import nn

class IllMeasured(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.trained = False

    def forward(self, x):
        self.trained |= self.training
        outputs = self.layer(x.flatten(1))
        return outputs if self.training or not self.trained else outputs * float("nan")

def build_model(num_classes):
    return IllMeasured(num_classes)
"""


def test_nonfinite_validation_fails_the_run(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(epochs=2, **model_file(ILL_MEASURED)), every_step=True)
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert failed.kind == "not_finite"
    assert failed.cause.startswith("The validation loss")
    assert group.losses
    assert all(map(math.isfinite, group.losses))
    assert group.of(Validation) == []
    assert not (group.folder / "checkpoints/best.pt").exists()
