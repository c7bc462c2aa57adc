"""Runs of the documented example of a custom task, from the folder to the checkpoint."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resources
from engine.contract.events import CheckpointSaved, Failed, Planned, Predicted, StepMetrics, Validation
from engine.contract.job import Job
from tests.engine.cli.terminal import footplate
from tests.engine.training.task_jobs import task_job
from tests.support.consent import permit_model_file
from tests.support.things import make_things
from tests.support.worker_group import Forker, WorkerGroup

Start = Callable[..., WorkerGroup]
EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_things(tmp_path_factory.mktemp("data") / "things", 120)


def job(folder: Path, file: Path = EXAMPLE, cpus: int = 1, **fields: Any) -> Job:
    given = {"task": "custom", "model": str(file), "model_file_sha256": permit_model_file(file)}
    return task_job(folder, cpus, **given | {"batch_size": 12, "epochs": 10, "learning_rate": 0.01} | fields)


def test_example_task_learns_and_loads_plainly(start: Start, things: Path) -> None:
    group = start(job(things)).completed(150)
    (plan,) = group.of(Planned)
    assert (plan.train_images, plan.val_images, plan.image_size) == (96, 24, 48)
    validations = [event.measures for event in group.of(Validation)]
    assert set(validations[-1]) == {"mean_error", "exact", "loss"}
    best = min(measures["mean_error"] for measures in validations)
    assert best < 1  # always predicting the middle has an error of 2
    assert all(event.accuracy is None for event in group.of(StepMetrics))
    module = runpy.run_path(str(EXAMPLE))["Counting"]()
    module.job = job(things)
    model = module.build_model(len(plan.classes), plan.channels)
    model.load_state_dict(torch.load(group.folder / "checkpoints/best.pt", weights_only=True))
    _, val = module.datasets()
    with torch.no_grad():
        found = model.eval()(torch.stack([val.load(index, 0)[0] for index in range(len(val))]))
    true = np.array([val.load(index, 0)[1].item() for index in range(len(val))])
    assert np.abs(found[:, 0].numpy() - true).mean() == pytest.approx(best, abs=1e-4)
    samples = group.of(Predicted)[-1].samples
    assert len(samples) == 8
    assert samples[0].truth_words.endswith("expected")
    assert all((group.folder / sample.prediction_png).is_file() for sample in samples)


def test_failure_of_task_file_has_its_line(start: Start, things: Path, tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("return (inputs.flip(3)", "return (inputs.flipped(3)")
    text = text.replace("< 0.5 else inputs)", "< 1.5 else inputs)")
    (tmp_path / "mine.py").write_text(text)
    group = start(job(things, tmp_path / "mine.py"))
    group.finish(100)
    (failed,) = group.of(Failed)
    line = text[: text.index("inputs.flipped")].count("\n") + 1
    assert f"AttributeError in line {line} (transform)" in failed.cause


MEASURED = """
import torch
from torch import nn
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score
from engine.tasks.custom.interface import Measure, CustomTask, SampleSet

class Points(SampleSet):
    def __init__(self, folder, count, seed):
        self.folder = folder
        draw = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(count, 6, generator=draw)
        self.targets = (self.inputs[:, :3] + 0.5 * torch.randn(count, 3, generator=draw)).argmax(1)

    def __len__(self):
        return len(self.inputs)

    def path(self, index):
        return str(index)

    def load(self, index, epoch):
        return self.inputs[index], self.targets[index]

class Regions(CustomTask):
    classes = "a", "b", "c"
    metrics = (
        Measure("f1", "F1", higher_is_better=True, percent=True),
        Measure("right", "Right", higher_is_better=True, percent=True),
        Measure("auroc", "AUROC", higher_is_better=True),
    )

    def datasets(self):
        return Points(self.job.data.dataset, 96, 1), Points(self.job.data.dataset, 49, 2)

    def build_model(self, classes, channels):
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, classes))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def build_metrics(self):
        return {"f1": MulticlassF1Score(3), "auroc": MulticlassAUROC(3)}

    def measure(self, outputs, targets):
        return (outputs.argmax(1) == targets)[:, None]
"""


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        ("ddp", {}),
        pytest.param("pipeline", {"microbatches": 2}, marks=pytest.mark.long),
        pytest.param("model_parallel", {}, marks=pytest.mark.long),
        pytest.param("fsdp", {}, marks=pytest.mark.long),
    ],
)
def test_torchmetrics_cover_the_validation_set(
    forker: Forker, start: Start, tmp_path: Path, strategy: str, fields: dict[str, Any]
) -> None:
    forker.preload("torchmetrics.classification")  # instead of in each of three workers
    file = tmp_path / "regions.py"
    file.write_text(MEASURED)
    # The last batch of the 49 samples has a single sample, which only one rank sees.
    given: dict[str, Any] = {"batch_size": 16, "epochs": 3, "best_by": "auroc", "patience": 3, "predictions": 0}
    alone = start(job(tmp_path, file, **given)).completed(150)
    group = start(job(tmp_path, file, 2, strategy=strategy, **given, **fields)).completed(150)
    validations = [event.measures for event in group.of(Validation)]
    for one, other in zip(validations, [event.measures for event in alone.of(Validation)], strict=True):
        assert list(one) == ["f1", "right", "auroc", "loss"]
        assert one == pytest.approx(other, abs=1e-6)
    best = max(validations, key=lambda measures: measures["auroc"])
    assert [event.measure for event in group.of(CheckpointSaved) if event.kind == "best"][-1] == best["auroc"]
    names: dict[str, Any] = {}
    exec(MEASURED, names)
    val, model = names["Points"]("", 49, 2), names["Regions"]().build_model(3, 6)
    model.load_state_dict(group.checkpoint("best.pt"))
    with torch.no_grad():
        outputs = model(val.inputs)
    for name, metric in (("f1", names["MulticlassF1Score"](3)), ("auroc", names["MulticlassAUROC"](3))):
        assert best[name] == pytest.approx(metric(outputs, val.targets).item(), abs=1e-6)


@pytest.mark.long
def test_train_command_skips_missing_image(tmp_path: Path) -> None:
    folder = make_things(tmp_path / "things", 24)
    (folder / "images/007.png").unlink()
    arguments = (
        "train",
        str(folder),
        "--task",
        "custom",
        "--model",
        str(EXAMPLE),
        "--batch-size",
        "8",
        "--epochs",
        "1",
    )
    refused = footplate(*arguments, "--devices", "cpu")
    assert refused.code == 2
    assert "counting.py contains code that you have not allowed to run yet" in refused.err
    answer = footplate(*arguments, "--devices", "cpu", "--trust-model-file")
    assert answer.code == 0, answer.err
    assert re.search(r"epoch 1: mean_error [\d.]+, exact [\d.]+, loss", answer.out)
    assert "images/007.png: " in answer.out
