"""A task in the user's own file: what it may define, and how its faults are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import resources
from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import inspector_options
from engine.contract.job import Job
from engine.data.datasets import open_splits
from engine.data.datasets.images import DatasetError
from engine.data.formats import imagefolder, registry
from engine.data.inspection.inspector import inspect
from engine.data.randomness import RandomStreams
from engine.models.base import TaskError
from engine.system.plugins import Registry
from engine.tasks.base import DatasetInfo
from engine.tasks.custom import task as custom
from engine.tasks.custom.task import as_image
from engine.tasks.registry import TASKS
from tests.support.consent import agreed
from tests.support.images import noise
from tests.support.things import make_things

TASK = TASKS["custom"]
EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_things(tmp_path_factory.mktemp("data") / "things", 20)


def job(folder: Path, file: Path, **fields: Any) -> Job:
    trusted = agreed(file)
    given = {"model": str(file), "model_file_sha256": trusted, "dataset": str(folder), "devices": ("cpu",)}
    return Job.from_fields(task="custom", **(given | fields))


def changed(tmp_path: Path, was: str, is_now: str) -> Path:
    """The example with a change in it."""
    text = EXAMPLE.read_text()
    assert was in text
    file = tmp_path / "mine.py"
    file.write_text(text.replace(was, is_now, 1))
    return file


def test_that_the_example_is_opened_as_it_says(things: Path) -> None:
    asked = job(things, EXAMPLE)
    splits = TASK.splits(asked)
    assert (len(splits.train), len(splits.val), splits.channels, splits.classes) == (16, 4, 3, ())
    assert TASK.splits(asked) is splits
    assert (TASK.example_shape(asked, 3), TASK.image_size(asked)) == ((3, 48, 48), 48)
    model = TASK.build_model(asked, 0, 3)
    again = TASK.build_model(asked, 0, 3)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    objective = TASK.objective(asked, DatasetInfo((), 3))
    assert [measure.id for measure in objective.entry.metrics] == ["mean_error", "exact", "loss"]
    assert objective.blank_targets(torch.zeros(5, 3, 48, 48)).shape == (5, 1)
    shown = objective.show_prediction(np.zeros((3, 48, 48), np.float32), torch.tensor([2.26]))  # type: ignore[arg-type]
    assert (shown.words, shown.image.shape) == ("2.3 counted", (48, 48, 3))


def test_that_measures_are_the_same_however_the_samples_are_divided(things: Path) -> None:
    objective = TASK.objective(job(things, EXAMPLE), DatasetInfo((), 3))
    outputs, targets = torch.tensor([[1.2], [3.0], [4.9]]), torch.tensor([[1.0], [5.0], [5.0]])
    whole, parts = objective.metric(), [objective.metric() for _ in range(2)]
    whole.update(outputs, targets)
    parts[0].update(outputs[:1], targets[:1])
    parts[1].update(outputs[1:], targets[1:])
    joined = objective.metric()
    joined.rows = torch.cat([part.rows for part in parts])
    assert joined.compute() == whole.compute()
    joined.reset()
    assert joined.compute() == {}
    joined.update(outputs, targets)
    assert joined.compute() == whole.compute()
    assert whole.compute()["mean_error"] == pytest.approx((0.2 + 2.0 + 0.1) / 3)
    assert whole.compute()["exact"] == pytest.approx(2 / 3)
    assert objective.metric().compute() == {}


METRICS = """
    def measure(self, outputs, targets):
        return (outputs.round() == targets).float()

    def metrics(self):
        from torchmetrics.regression import MeanAbsoluteError, PearsonCorrCoef
        from torchmetrics.wrappers import MinMaxMetric
        return {"mean_error": MeanAbsoluteError()}

    def measured("""


def with_metrics(tmp_path: Path, was: str = "", is_now: str = "") -> Path:
    file = changed(tmp_path, "\n    def measure(", METRICS)
    text = file.read_text()
    assert was in text
    file.write_text(text.replace(was, is_now, 1) if was else text)
    return file


def test_that_metrics_of_torchmetrics_tell_some_of_the_measures_and_are_left_out_where_they_are_not_finite(
    things: Path, tmp_path: Path
) -> None:
    objective = TASK.objective(job(things, with_metrics(tmp_path)), DatasetInfo((), 3))
    measures = objective.metric()
    for number in range(3):
        measures.reset()
        measures.update(torch.tensor([[1.2], [3.0]]), torch.tensor([[1.0], [5.0]]))
        measures.update(torch.tensor([[4.9 + number]]), torch.tensor([[5.0 + number]]))
        values = measures.compute()
        assert list(values) == ["mean_error", "exact", "loss"]
        assert values["mean_error"] == pytest.approx((0.2 + 2.0 + 0.1) / 3)
        assert values["exact"] == pytest.approx(2 / 3)
    file = with_metrics(tmp_path, ": MeanAbsoluteError()", ": MeanAbsoluteError() / 0")
    objective = TASK.objective(job(things, file), DatasetInfo((), 3))
    measures = objective.metric()
    measures.update(torch.tensor([[1.2]]), torch.tensor([[1.0]]))
    assert list(measures.compute()) == ["exact", "loss"]


@pytest.mark.parametrize(
    ("was", "is_now", "told"),
    [
        ('{"mean_error"', '{"mean_errors"', "metrics returns “mean_errors”, which is not in `measures`"),
        (
            ": MeanAbsoluteError()",
            ": print",
            "metrics returns a builtin_function_or_method for “mean_error”, not a torchm",
        ),
        ("return {", "return [1] or {", "metrics returns a list, not a dict"),
        (": MeanAbsoluteError()", ": PearsonCorrCoef(2)", r"mine\.py, fails in the metric “mean_error”: "),
        (": MeanAbsoluteError()", ": MinMaxMetric(MeanAbsoluteError())", "returns a dict; expected a single number"),
    ],
)
def test_that_a_fault_in_its_metrics_is_told_before_training(
    things: Path, tmp_path: Path, *, was: str, is_now: str, told: str
) -> None:
    with pytest.raises(TaskError, match=told):
        TASK.build_model(job(things, with_metrics(tmp_path, was, is_now)), 0, 3)


def test_that_what_transform_draws_depends_on_seed_rank_and_place_alone(things: Path, tmp_path: Path) -> None:
    file = changed(
        tmp_path,
        "return (inputs.flip(3) if torch.rand(()) < 0.5 else inputs), targets",
        "return inputs + torch.rand(()), targets",
    )
    finish = TASK.finish(job(things, file), RandomStreams(0), rank=0)
    assert finish is not None
    given = torch.zeros(2, 3, 48, 48), torch.zeros(2, 1)
    state = torch.get_rng_state()
    drawn = [finish(*given, epoch, place)[0][0, 0, 0, 0].item() for epoch, place in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    assert torch.equal(torch.get_rng_state(), state)
    for seed, rank in ((1, 0), (0, 1)):
        other = TASK.finish(job(things, file), RandomStreams(seed), rank=rank)
        assert other is not None
        assert other(*given, 1, 0)[0][0, 0, 0, 0].item() not in drawn


@pytest.mark.parametrize(
    ("was", "is_now", "told"),
    [
        ("class Counting(OwnTask)", "class Counting(OwnTask", r"mine\.py, line {line}: "),
        ("(OwnTask):", "(object):", r"mine\.py has no class derived from OwnTask\. Define one: class MyTask"),
        ("    def loss(", "    def lost(", r"Counting in mine\.py has no loss"),
        ("nn.Flatten(),", "nn.Flattern(),", r"mine\.py, line {line}, fails in build_model: AttributeError"),
        ("nn.MaxPool2d(2)", "nn.MaxPool2d(2), nn.Linear(7, 7)", r"fails on inputs of \[2, 3, 48, 48\]: RuntimeError"),
        ("marks.sum(1, keepdim=True)", "(marks,)[1]", r"mine\.py, line {line}, fails on inputs of .*: IndexError"),
        ("[:, 0]", "", r"mine\.py: loss returns a tensor of \[2, 1\]; expected one loss per sample, \[2\]"),
        (".float()], 1)", ".float()], 0)", r"mine\.py: measure returns a tensor of \[4, 1\]; expected one row per sample"),
        (", (outputs.round() == targets).float()], 1)", "], 1)", "summarise returns 1 values for 2 measures"),
        ('"counts.csv"', '"table.csv"', r"mine\.py, line {line}, fails in datasets: FileNotFoundError"),
        ("return CountedImages(folder, rows[kept:]), ", "return ", "datasets returns a CountedImages, not two SampleSets"),
        ("rows[:kept])", "[])", r"mine\.py finds no samples for validation in"),
        (", torch.tensor([float(count)])", ", count", "load returns a tuple, not a tuple of an input and a target"),
    ],
)  # fmt: skip
def test_that_a_fault_in_the_file_is_told_before_training_with_its_line(
    things: Path, tmp_path: Path, *, was: str, is_now: str, told: str
) -> None:
    file = changed(tmp_path, was, is_now)
    text = EXAMPLE.read_text()
    line = text[: text.index(was)].count("\n") + 1
    with pytest.raises(TaskError, match=told.replace("{line}", str(line))):
        TASK.build_model(job(things, file), 0, 3)


def test_that_a_file_is_not_run_without_consent_to_what_is_in_it(things: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    asked = job(things, file)
    file.write_text(file.read_text() + "\n")
    with pytest.raises(TaskError, match=r"you have not allowed to run yet\. It has changed"):
        TASK.splits(asked)
    assert not (tmp_path / "ran").exists()
    (problem,) = problems(asked, load_catalogue())
    assert (problem.field, "not allowed" in problem.message) == ("model", True)


def test_that_a_job_without_a_file_is_told_what_is_missing(things: Path) -> None:
    (problem,) = problems(
        Job.from_fields(task="custom", model="", dataset=str(things), devices=("cpu",)), load_catalogue()
    )
    assert problem.field == "model"
    assert "Choose that file as the model" in problem.remedy
    own = job(things, EXAMPLE, best_by="exact")
    assert problems(own, load_catalogue()) == []  # the file's measures are its own
    with pytest.raises(TaskError, match=r"“exactly” is not a metric of counting\.py\. Did you mean “exact”"):
        TASK.objective(job(things, EXAMPLE, best_by="exactly"), DatasetInfo((), 3))


OWN_ON_FORMATS = """
import torch
from torch import nn
from engine.tasks.custom_file import OwnTask

class Brightness(OwnTask):
    annotations = ("classes",)
    image_size = 32
    statistics = (0.5,), (0.25,)

    def build_model(self, classes, channels):
        return nn.Sequential(nn.Conv2d(channels, 1, 1), nn.Flatten(), nn.Linear(1024, classes))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""


def test_that_a_folder_of_a_known_format_needs_no_dataset_class(tmp_path: Path) -> None:
    for number in range(12):
        noise(tmp_path / "data" / ("ant", "bee")[number % 2] / f"{number}.png", seed=number)
    file = tmp_path / "mine.py"
    file.write_text(OWN_ON_FORMATS)
    asked = job(tmp_path / "data", file)
    assert TASK.splits(asked).classes == ("ant", "bee")
    assert (TASK.image_size(asked), TASK.normalisation(asked, 3)) == (32, ((0.5,) * 3, (0.25,) * 3))
    assert TASK.build_model(asked, 2, 3)(torch.zeros(4, 3, 32, 32)).shape == (4, 2)
    assert TASK.finish(asked, RandomStreams(0), rank=0) is None
    objective = TASK.objective(asked, DatasetInfo(("ant", "bee"), 3))
    assert objective.entry.metrics[0].id == "loss"
    assert objective.blank_targets(torch.zeros(5, 3, 32, 32)).dtype == torch.int64
    file.write_text(OWN_ON_FORMATS.replace('"classes"', '"class"'))
    with pytest.raises(TaskError, match=r"there are no annotations “class”\. Did you mean “classes”"):
        TASK.splits(job(tmp_path / "data", file))


def test_that_the_folder_is_looked_through_without_a_judgement(things: Path) -> None:
    report = inspect(
        str(things), val_fraction=0.2, seed=0, kinds=TASK.entry.annotations, progress=lambda done, total: None
    )
    assert (report.format, report.problems, report.classes) == ("files", (), ())
    assert [split.images for split in report.splits] == [21]
    assert len(report.examples) > 5


def test_that_inputs_that_are_no_images_are_shown_as_well_as_can_be() -> None:
    assert as_image(np.zeros((100, 6), np.float32)[None, 0]).shape == (1, 6, 3)
    assert as_image(np.zeros(7, np.float32)).shape == (64, 64, 3)
    stretched = as_image(np.linspace(-1, 1, 5 * 4 * 4, dtype=np.float32).reshape(5, 4, 4))
    assert (stretched.dtype, stretched.min(), stretched.max()) == (np.uint8, 0, 255)


@pytest.mark.parametrize("format_", ["imagefolder", "coco", "table:color"])
def test_own_file_is_inspected_without_the_format_it_reads(tmp_path: Path, format_: str) -> None:
    for number in range(12):
        noise(tmp_path / "data" / ("ant", "bee")[number % 2] / f"{number}.png", seed=number)
    file = tmp_path / "mine.py"
    file.write_text(OWN_ON_FORMATS)
    asked = job(tmp_path / "data", file, format=format_)
    assert "--format" not in inspector_options(asked, load_catalogue())
    if format_ == "imagefolder":
        assert TASK.splits(asked).format == "imagefolder"
    else:
        with pytest.raises(DatasetError):
            TASK.splits(asked)


@pytest.mark.parametrize("kind", ["sounds", "stereo pairs", "classes of a plug-in"])
def test_own_file_may_read_annotations_of_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    added = replace(
        imagefolder.FORMAT,
        id="added",
        kinds=(kind,),
        detect=lambda tree: [replace(each, kinds=(kind,)) for each in imagefolder.FORMAT.detect(tree)],
    )
    known = Registry("footplate.formats", {**registry.FORMATS.own, "added": added}, registry._accept)
    for module in (registry, custom, open_splits):
        monkeypatch.setattr(module, "FORMATS", known)
    for number in range(12):
        noise(tmp_path / "data" / ("ant", "bee")[number % 2] / f"{number}.png", seed=number)
    file = tmp_path / "mine.py"
    file.write_text(OWN_ON_FORMATS.replace('"classes"', f'"{kind}"'))
    assert TASK.splits(job(tmp_path / "data", file)).classes == ("ant", "bee")
