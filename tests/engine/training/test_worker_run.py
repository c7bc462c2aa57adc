"""Complete runs of real workers: events, checkpoints, stops and failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import resnet18

from engine.contract.events import (
    CheckpointSaved,
    EpochStarted,
    Failed,
    LogLine,
    PhaseChanged,
    Planned,
    StepMetrics,
    Validation,
    Warned,
)
from engine.contract.images import Preprocessing
from engine.contract.job import Job
from engine.contract.protocol import CheckpointNow, Pause, Stop
from engine.contract.worker import Heartbeat, WorkerDone
from engine.tasks.registry import TASKS
from engine.training.randomness import seed
from tests.engine.strategies.comparison import is_statistic
from tests.support.gates import ON_COMMAND

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

GATED = """
import os, time
import torch
from torch import nn

class Gated(nn.Module):
    '''Waits in its fourth step until a file is there.'''
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
            while self.steps == 4 and not os.path.exists({gate!r}):
                time.sleep(0.01)
        return self.layer(x.flatten(1))

def build_model(num_classes):
    return Gated(num_classes)
"""

NAN = """
import torch
import torch.distributed as dist
from torch import nn

class Spoilt(nn.Module):
    '''Gives NaN from its ninth step on, on the last rank alone.'''
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.steps = 0

    def forward(self, x):
        y = self.layer(x.flatten(1))
        self.steps += self.training
        last = not dist.is_initialized() or dist.get_rank() == dist.get_world_size() - 1
        return y * float("nan") if self.steps >= 9 and last else y

def build_model(num_classes):
    return Spoilt(num_classes)
"""

BROKEN = """
import torch
from torch import nn

class Broken(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)
        self.left = 3

    def forward(self, x):
        if not self.left:
            self.fail()
        self.left -= self.training
        return self.layer(x.flatten(1))

    def fail(self):
        raise ValueError(f"\\n{torch.get_num_threads()} threads, seed {torch.initial_seed()}")

def build_model(num_classes):
    return Broken(num_classes)
"""


PUTS = """
import torch
from torch import nn

class Puts(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(768, classes)

    def forward(self, x):
        if self.training:
            x = x.clone().put_(torch.tensor([0, 1]), torch.zeros(2))
        return self.layer(x.flatten(1))

def build_model(num_classes):
    return Puts(num_classes)
"""


def test_run_reports_events_in_order(job: Make, start: Start) -> None:
    group = start(job(epochs=2), every_step=True).completed()
    messages = [message for _, message in group.messages]
    kinds = [type(message) for message in messages]
    assert kinds.index(Planned) < kinds.index(StepMetrics)
    (planned,) = group.of(Planned)
    weights = sum(tensor.numel() for tensor in group.checkpoint("best.pt").values())
    metrics = TASKS["classification"].entry.metrics
    assert planned == Planned(
        epochs=2, steps_per_epoch=6, train_images=72, val_images=21, classes=("blue", "green", "red"), image_size=16,
        channels=3, parameters=weights, trainable_parameters=weights, metrics=metrics, preprocessing=planned.preprocessing,
    )  # fmt: skip
    assert planned.preprocessing == Preprocessing(framing="crop", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert [message.epoch for message in group.of(EpochStarted)] == [1, 2]
    phases = [message.phase for message in group.of(PhaseChanged)]
    assert phases == ["preparing", *["training", "validating", "saving"] * 2]
    steps = group.of(StepMetrics)
    assert [metrics.step for metrics in steps] == list(range(1, 13))
    rates = [metrics.learning_rate for metrics in steps]
    assert rates[0] == 0.02
    assert rates == sorted(rates, reverse=True)
    assert all(metrics.images_per_second > 0 and metrics.compute_s > 0 for metrics in steps)
    assert [message.images for message in group.of(Validation)] == [21, 21]
    assert group.done.best == group.of(Validation)[group.done.best_epoch - 1].measures
    assert kinds[-1] is WorkerDone


def test_sparse_step_reports_cover_all_steps(job: Make, start: Start) -> None:
    every = start(job(epochs=3), every_step=True).completed()
    some = start(job(epochs=3)).completed()
    steps = [metrics.step for metrics in some.of(StepMetrics)]
    assert steps[0] == 1
    assert {6, 12, 18} <= set(steps)
    previous = 0
    for metrics in some.of(StepMetrics):
        assert metrics.loss == pytest.approx(np.mean(every.losses[previous : metrics.step]), rel=1e-5)
        previous = metrics.step


@pytest.mark.parametrize(
    ("strategy", "cpus"),
    [
        ("single", 1),
        pytest.param("ddp", 2, marks=pytest.mark.long),
        pytest.param("pipeline", 2, marks=pytest.mark.long),
    ],
)
def test_frozen_backbone_moves_later_and_loads_into_torchvision(
    job: Make, start: Start, images: Path, strategy: str, cpus: int
) -> None:
    fields = {"model": "resnet18", "image_size": 32, "epochs": 2, "keep_checkpoints": 1}
    run_job = job(cpus=cpus, strategy=strategy, freeze_epochs=1, freeze_batchnorm=True, **fields)
    group = start(run_job).completed()
    seed(run_job.training.seed)
    initial = TASKS["classification"].build_model(run_job, 3, 3).state_dict()
    backbone = [name for name in initial if not name.startswith("fc.")]
    states = [group.checkpoint(name)["model"] for name in ("epoch-1-step-6.pt", "last.pt")]
    moved = [[name for name in backbone if not torch.equal(initial[name], state[name])] for state in states]
    assert moved == [[], [name for name in backbone if not is_statistic(name)]]
    assert [line.text for line in group.of(LogLine)] == ["All layers are trained from epoch 2 on"]
    (planned,) = group.of(Planned)
    assert (planned.parameters - planned.trainable_parameters, planned.trainable_parameters) == (
        11_176_512,
        512 * 3 + 3,
    )
    model = resnet18(num_classes=3)
    model.load_state_dict(group.checkpoint("best.pt"))
    model.eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    right = 0
    files = sorted((images / "val").rglob("*.png"))
    for path in files:
        pixels = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[None].float()
        pixels = torch.nn.functional.interpolate(pixels, (32, 32), mode="bilinear", antialias=True).round()
        inputs = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
        right += int(model(inputs).argmax()) == ("blue", "green", "red").index(path.parent.name)
    assert right / len(files) == pytest.approx(group.done.best["top1"], abs=1e-9)


def test_frozen_batchnorm_keeps_its_statistics(job: Make, start: Start, model_file: Write) -> None:
    text = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(768, num_classes))
"""
    group = start(job(epochs=1, freeze_batchnorm=True, **model_file(text))).completed()
    assert not group.checkpoint()["model"]["0.running_mean"].any()


@pytest.mark.parametrize(
    ("strategy", "cpus", "command", "phase"),
    [("single", 1, Stop(), "stopping"), ("ddp", 2, Stop(), "stopping"), ("single", 1, Pause(), "pausing")],
)
def test_stop_ends_all_ranks_at_the_same_step(
    job: Make,
    start: Start,
    model_file: Write,
    tmp_path: Path,
    *,
    strategy: str,
    cpus: int,
    command: Stop | Pause,
    phase: str,
) -> None:
    gate = tmp_path / "gate"
    fields = model_file(GATED.format(gate=str(gate)))
    run_job = job(cpus=cpus, strategy=strategy, epochs=1000, **fields)
    group = start(run_job, prepare=ON_COMMAND)
    group.read_steps(1)
    group.send(command, rank=cpus - 1)  # only one rank gets the command
    assert group.finish() == [0] * cpus
    assert [done.stopped for done in group.of(WorkerDone)] == [True] * cpus
    # The command may be read just after the step that waits for it.
    assert 1 < group.checkpoint()["step"] <= 5
    assert group.of(StepMetrics)[-1].step == group.checkpoint()["step"]
    ended = group.of(PhaseChanged)[-1]
    assert (ended.phase, ended.detail.split()[-1]) == (phase, str(group.checkpoint()["step"]))


def test_stop_interrupts_validation(job: Make, start: Start, model_file: Write, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    fields = model_file(GATED.format(gate=str(gate)).replace("if self.training:", "if not self.training:"))
    group = start(job(cpus=2, strategy="ddp", batch_size=3, epochs=1000, **fields), prepare=ON_COMMAND)
    group.read(lambda _, message: isinstance(message, PhaseChanged) and message.phase == "validating")
    group.send(Stop(), rank=0)
    assert group.finish() == [0, 0]
    assert [done.stopped for done in group.of(WorkerDone)] == [True, True]
    assert not group.of(Validation)
    assert (group.checkpoint()["step"], group.checkpoint()["validated"]) == (24, False)
    assert not (group.folder / "checkpoints/best.pt").exists()


def test_stop_ends_pipeline(job: Make, start: Start) -> None:
    group = start(job(cpus=2, strategy="pipeline", epochs=1000), every_step=True)
    group.read_steps(3)
    group.send(Stop(), rank=0)
    group.send(Stop(), rank=1)
    assert group.finish() == [0, 0]
    assert [done.stopped for done in group.of(WorkerDone)] == [True, True]
    assert group.checkpoint()["step"] == group.of(StepMetrics)[-1].step


def test_checkpoint_command_saves(job: Make, start: Start, model_file: Write, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    group = start(job(epochs=2, **model_file(GATED.format(gate=str(gate)))), every_step=True, prepare=ON_COMMAND)
    group.read_steps(3)
    group.read(lambda _, event: isinstance(event, Heartbeat) and (event.step, event.activity) == (3, "step"))
    group.send(CheckpointNow(), rank=0)
    saved = group.read(lambda _, message: isinstance(message, CheckpointSaved))
    assert saved.kind == "last"
    assert saved.step in (4, 5)
    group.completed()
    assert len(group.of(StepMetrics)) == 12
    steps = {message.step for message in group.of(CheckpointSaved)}
    assert {saved.step, 12} <= steps <= {saved.step, 6, 12}  # a slow disk may skip the end of the first epoch
    phases = [message.phase for message in group.of(PhaseChanged)]
    assert phases == ["preparing", "training", "saving", *["training", "validating", "saving"] * 2]


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2)])
def test_nan_fails_run_and_keeps_checkpoint(
    job: Make, start: Start, model_file: Write, strategy: str, cpus: int
) -> None:
    group = start(job(cpus=cpus, strategy=strategy, epochs=1000, **model_file(NAN)))
    assert group.finish() == [1] * cpus
    for rank in range(cpus):
        (failed,) = group.of(Failed, rank)
        assert failed.step == 9
        assert "NaN or infinite at step 9" in failed.cause
    state = group.checkpoint()
    assert (state["epoch"], state["step"]) == (1, 6)
    assert all(bool(tensor.isfinite().all()) for tensor in state["model"].values())


def test_full_disk_does_not_end_training(job: Make, start: Start) -> None:
    group = start(job(epochs=2), file_limit_bytes=100_000, prepare="tests.support.impatience:give_up_at_once")
    good = group.folder / "checkpoints/last.pt"
    good.write_bytes(b"the last good one")
    group.completed()
    warnings = group.of(Warned)
    assert [warning.code for warning in warnings] == ["checkpoint_failed"] * 4 + ["unsaved"]
    assert all(re.search(r"(best|last)\.pt could not be saved: the disk .* is full", w.message) for w in warnings)
    assert group.done.unsaved
    assert good.read_bytes() == b"the last good one"
    assert [path.name for path in good.parent.iterdir()] == ["last.pt"]
    assert len(group.of(Validation)) == 2
    assert group.done.best == {}


def test_failure_of_model_file_has_its_line(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(cpus=2, strategy="ddp", cpu_threads=3, **model_file(BROKEN)))
    assert group.finish() == [1, 1]
    failures = group.of(Failed)
    for failed in failures:
        assert failed.step == 4
        assert "raised ValueError in line 18 (fail) at step 4: 3 threads" in failed.cause
        assert "ValueError" in (group.folder / failed.traceback_file).read_text()
    assert len({failed.cause.partition("seed")[2] for failed in failures}) == 2, "ranks draw different numbers"


def test_failure_names_nondeterministic_operation(job: Make, start: Start, model_file: Write) -> None:
    fields = model_file(PUTS)
    group = start(job(**fields, deterministic=True))
    assert group.finish() == [1]
    assert group.of(Failed)[0].cause == (
        "The model uses put_, which has no deterministic implementation. "
        "Turn Deterministic off, or choose another model."
    )
    start(job(**fields)).completed()
    usual = start(job(), every_step=True).completed()
    assert start(job(deterministic=True), every_step=True).completed().losses == usual.losses


def test_missing_dataset_fails(job: Make, start: Start, tmp_path: Path) -> None:
    group = start(job(dataset=str(tmp_path / "nowhere")))
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert "nowhere" in failed.cause
    assert failed.step is None


def test_worker_exits_with_its_supervisor(job: Make, start: Start) -> None:
    group = start(job(epochs=100_000))
    group.read_steps(1)
    for channel in group.sockets:
        channel.shutdown(2)
    assert group.wait_for_exit_codes() == [None]


def test_unreadable_image_is_reported_once(job: Make, start: Start, images: Path, tmp_path: Path) -> None:
    for path in images.rglob("*.png"):
        copy = tmp_path / "copy" / path.relative_to(images)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "copy/train/red/3.png").write_bytes(b"no image")
    (tmp_path / "copy/val/blue/2.png").write_bytes(b"")
    fields = {"dataset": str(tmp_path / "copy"), "epochs": 2}
    single = start(job(**fields), every_step=True).completed()
    messages = [warning.message for warning in single.of(Warned) if warning.code == "unreadable_picture"]
    assert len(messages) == 2
    assert any("train/red/3.png" in message for message in messages)
    group = start(job(cpus=2, strategy="pipeline", **fields), every_step=True).completed()
    np.testing.assert_allclose(group.losses, single.losses, rtol=1e-4)
    assert group.done.best == pytest.approx(single.done.best, rel=1e-4)
