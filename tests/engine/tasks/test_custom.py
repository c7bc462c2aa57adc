"""Custom tasks: the interface of their files, and errors in these files."""

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
from engine.tasks.custom.task import convert_to_image
from engine.tasks.registry import TASKS
from tests.support.consent import permit_model_file
from tests.support.images import write_noise
from tests.support.things import make_things

TASK = TASKS["custom"]
EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_things(tmp_path_factory.mktemp("data") / "things", 20)


def custom_job(folder: Path, file: Path, **fields: Any) -> Job:
    trusted = permit_model_file(file)
    values = {"model": str(file), "model_file_sha256": trusted, "dataset": str(folder), "devices": ("cpu",)}
    return Job.from_fields(task="custom", **(values | fields))


def write_changed_example(tmp_path: Path, was: str, is_now: str) -> Path:
    """Write the example of a task with `was` replaced by `is_now`. Return the path of the file."""
    text = EXAMPLE.read_text()
    assert was in text
    file = tmp_path / "mine.py"
    file.write_text(text.replace(was, is_now, 1))
    return file


def test_example_opens_its_samples_and_model(things: Path) -> None:
    job = custom_job(things, EXAMPLE)
    splits = TASK.open_splits(job)
    assert (len(splits.train), len(splits.val), splits.channels, splits.classes) == (16, 4, 3, ())
    assert TASK.open_splits(job) is splits
    assert (TASK.get_example_shape(job, 3), TASK.get_image_size(job)) == ((3, 48, 48), 48)
    assert [TASK.get_image_size(job.with_fields(dataset=each, image_size=32)) for each in (job.data.dataset, "")] == [
        32,
        32,
    ]
    assert TASK.open_splits(job.with_fields(accumulation=2)) is splits
    assert TASK.get_image_size(job.with_fields(dataset="")) == 224
    assert TASK.open_splits(job) is not splits  # only one task stays in memory
    model = TASK.build_model(job, 0, 3)
    again = TASK.build_model(job, 0, 3)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    assert model.training
    batches = [number for name, number in model.named_buffers() if name.endswith("num_batches_tracked")]
    assert list(map(int, batches)) == [0, 0]
    objective = TASK.create_objective(job, DatasetInfo((), 3))
    assert [measure.id for measure in objective.entry.metrics] == ["mean_error", "exact", "loss"]
    assert objective.create_blank_targets(torch.zeros(5, 3, 48, 48)).shape == (5, 1)
    drawing = objective.show_prediction(np.zeros((3, 48, 48), np.float32), torch.tensor([2.26]))  # type: ignore[arg-type]
    assert (drawing.text, drawing.image.shape) == ("2.3 counted", (48, 48, 3))
    assert TASK.get_example_shape(job.with_fields(image_size=32), 3) == (3, 48, 48)


def test_example_is_the_first_readable_sample(things: Path, tmp_path: Path) -> None:
    load = "name, count = self.rows[index]\n"
    file = write_changed_example(tmp_path, load, f"{load}        if index < 2: raise UnreadableImage('', '')\n")
    assert TASK.get_example_shape(custom_job(things, file), 3) == (3, 48, 48)
    file = write_changed_example(tmp_path, load, "raise UnreadableImage('', '')\n")
    with pytest.raises(DatasetError):
        TASK.get_example_shape(custom_job(things, file), 3)


def test_model_starts_from_the_weights_of_a_file(things: Path, tmp_path: Path) -> None:
    job = custom_job(things, EXAMPLE)
    with pytest.raises(TaskError, match=r"no pretrained weights for counting\.py") as error:
        TASK.build_model(job.with_fields(pretrained=True), 0, 3)
    assert error.value.field == "pretrained"
    before = TASK.build_model(job.with_fields(seed=1), 0, 3).state_dict()
    torch.save(before, tmp_path / "weights.pt")
    after = TASK.build_model(job.with_fields(weights_file=str(tmp_path / "weights.pt")), 0, 3).state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert not torch.equal(TASK.build_model(job, 0, 3).state_dict()["0.weight"], before["0.weight"])


def test_samples_of_doubles_are_tried_as_floats(things: Path, tmp_path: Path) -> None:
    file = write_changed_example(tmp_path, "permute(2, 0, 1) / 255", "permute(2, 0, 1).double() / 255")
    assert TASK.build_model(custom_job(things, file), 0, 3).training


def test_metric_is_equal_for_merged_ranks(things: Path) -> None:
    objective = TASK.create_objective(custom_job(things, EXAMPLE), DatasetInfo((), 3))
    outputs, targets = torch.tensor([[1.2], [3.0], [4.9]]), torch.tensor([[1.0], [5.0], [5.0]])
    full, parts = objective.create_metric(), [objective.create_metric() for _ in range(2)]
    full.update(outputs, targets)
    parts[0].update(outputs[:1], targets[:1])
    parts[1].update(outputs[1:], targets[1:])
    joined = objective.create_metric()
    joined.rows = torch.cat([metric.rows for metric in parts])
    assert joined.compute() == full.compute()
    joined.reset()
    assert joined.compute() == {}
    joined.update(outputs, targets)
    assert joined.compute() == full.compute()
    expected = {"mean_error": (0.2 + 2.0 + 0.1) / 3, "exact": 2 / 3, "loss": (0.02 + 1.5 + 0.005) / 3}
    assert full.compute() == pytest.approx(expected)
    assert objective.create_metric().compute() == {}


METRICS = """
    def measure(self, outputs, targets):
        return (outputs.round() == targets).float()

    def build_metrics(self):
        from torchmetrics.regression import MeanAbsoluteError, PearsonCorrCoef
        from torchmetrics.wrappers import MinMaxMetric
        return {"mean_error": MeanAbsoluteError()}

    def measured("""


def with_metrics(tmp_path: Path, was: str = "", is_now: str = "") -> Path:
    file = write_changed_example(tmp_path, "\n    def measure(", METRICS)
    text = file.read_text()
    assert was in text
    file.write_text(text.replace(was, is_now, 1) if was else text)
    return file


def test_torchmetrics_compute_declared_metrics_if_finite(things: Path, tmp_path: Path) -> None:
    objective = TASK.create_objective(custom_job(things, with_metrics(tmp_path)), DatasetInfo((), 3))
    metric = objective.create_metric()
    for number in range(3):
        metric.reset()
        metric.update(torch.tensor([[1.2], [3.0]]), torch.tensor([[1.0], [5.0]]))
        metric.update(torch.tensor([[4.9 + number]]), torch.tensor([[5.0]]))
        values = metric.compute()
        assert list(values) == ["mean_error", "exact", "loss"]
        assert values["mean_error"] == pytest.approx((0.2 + 2.0 + abs(number - 0.1)) / 3)
        assert values["exact"] == pytest.approx((2 if number == 0 else 1) / 3)
    file = with_metrics(tmp_path, ": MeanAbsoluteError()", ": MeanAbsoluteError() / 0")
    objective = TASK.create_objective(custom_job(things, file), DatasetInfo((), 3))
    metric = objective.create_metric()
    metric.update(torch.tensor([[1.2]]), torch.tensor([[1.0]]))
    assert list(metric.compute()) == ["exact", "loss"]


@pytest.mark.parametrize(
    ("was", "is_now", "expected"),
    [
        ('{"mean_error"', '{"mean_errors"', "“mean_errors”, which is not in `metrics`"),
        (": MeanAbsoluteError()", ": print", "a builtin_function_or_method for “mean_error”, not a torchmetrics"),
        ("return {", "return [1] or {", "returns a list, not a dict"),
        (": MeanAbsoluteError()", ": PearsonCorrCoef(2)", r"mine\.py, fails in the metric “mean_error”: "),
        (
            ": MeanAbsoluteError()",
            ": MeanAbsoluteError(num_outputs=2)",
            r"returns a tensor of \[2\]; expected a single",
        ),
        (": MeanAbsoluteError()", ": MinMaxMetric(MeanAbsoluteError())", "returns a dict; expected a single number"),
    ],
)
def test_build_model_reports_faulty_metrics(
    things: Path, tmp_path: Path, *, was: str, is_now: str, expected: str
) -> None:
    with pytest.raises(TaskError, match=expected):
        TASK.build_model(custom_job(things, with_metrics(tmp_path, was, is_now)), 0, 3)


def test_transform_draws_depend_on_seed_rank_and_batch(things: Path, tmp_path: Path) -> None:
    file = write_changed_example(
        tmp_path,
        "return (inputs.flip(3) if torch.rand(()) < 0.5 else inputs), targets",
        "return inputs + torch.rand(()), targets",
    )
    finish = TASK.create_batch_transform(custom_job(things, file), RandomStreams(0), rank=0)
    assert finish is not None
    values = torch.zeros(2, 3, 48, 48), torch.zeros(2, 1)
    state = torch.get_rng_state()
    drawn = [finish(*values, epoch, place)[0][0, 0, 0, 0].item() for epoch, place in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
    assert torch.equal(torch.get_rng_state(), state)
    for seed, rank in ((1, 0), (0, 1)):
        other = TASK.create_batch_transform(custom_job(things, file), RandomStreams(seed), rank=rank)
        assert other is not None
        assert other(*values, 1, 0)[0][0, 0, 0, 0].item() not in drawn
    empty = torch.zeros(0, 3, 48, 48), torch.zeros(0, 1)
    assert finish(*empty, 1, 0)[0] is empty[0]
    file = write_changed_example(tmp_path, "else inputs), targets", "else inputs)")
    faulty = TASK.create_batch_transform(custom_job(things, file), RandomStreams(0), rank=0)
    assert faulty is not None
    with pytest.raises(TaskError, match=r"transform returns a tensor of .*, not a tuple of inputs and targets"):
        faulty(*values, 1, 0)


@pytest.mark.parametrize(
    ("was", "is_now", "expected"),
    [
        ("class Counting(CustomTask)", "class Counting(CustomTask", r"mine\.py, line {line}: "),
        ("(CustomTask):", "(object):", r"mine\.py has no class derived from CustomTask\. Define one: class MyTask"),
        ("    def loss(", "    def lost(", r"Counting in mine\.py has no loss"),
        ("nn.Flatten(),", "nn.Flattern(),", r"mine\.py, line {line}, fails in build_model: AttributeError"),
        ("nn.MaxPool2d(2)", "nn.MaxPool2d(2), nn.Linear(7, 7)", r"fails on inputs of \[2, 3, 48, 48\]: RuntimeError"),
        ("marks.sum(1, keepdim=True)", "(marks,)[1]", r"mine\.py, line {line}, fails on inputs of .*: IndexError"),
        ("marks.sum(1, keepdim=True)", "marks.sum()[None, None]", r"returns a tensor of \[1, 1\]; expected a tensor of \[2"),
        ("[:, 0]", "", r"mine\.py: loss returns a tensor of \[2, 1\]; expected one loss per sample, \[2\]"),
        (".float()], 1)", ".float()], 0)", r"mine\.py: measure returns a tensor of \[4, 1\]; expected one row per sample"),
        (".float()], 1)", ".float()], 1)[:, 0]", r"mine\.py: measure returns a tensor of \[2\]; expected one row per sample"),
        ("class Counting(CustomTask)", "class Other(CustomTask): pass\n\n\nclass Counting(CustomTask)", "has more than one class derived"),
        (", (outputs.round() == targets).float()], 1)", "], 1)", "summarize returns 1 value for 2 metrics"),
        ('"counts.csv"', '"table.csv"', r"mine\.py, line {line}, fails in datasets: FileNotFoundError"),
        ("return CountedImages(folder, rows[val_count:]), ", "return ", "datasets returns a CountedImages, not two SampleSets"),
        ("rows[:val_count])", "[])", r"mine\.py finds no samples for validation in"),
        (", torch.tensor([float(count)])", ", count", "load returns a tuple, not a tuple of an input and a target"),
    ],
)  # fmt: skip
def test_build_model_reports_faults_of_the_file_with_line(
    things: Path, tmp_path: Path, *, was: str, is_now: str, expected: str
) -> None:
    file = write_changed_example(tmp_path, was, is_now)
    text = EXAMPLE.read_text()
    line = text[: text.index(was)].count("\n") + 1
    with pytest.raises(TaskError, match=expected.replace("{line}", str(line))):
        TASK.build_model(custom_job(things, file), 0, 3)


def test_changed_file_is_not_run_without_consent(things: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()")
    job = custom_job(things, file)
    file.write_text(file.read_text() + "\n")
    with pytest.raises(TaskError, match=r"you have not allowed to run yet\. It has changed"):
        TASK.open_splits(job)
    with pytest.raises(TaskError, match=r"you have not allowed to run yet\. Review"):
        TASK.open_splits(job.with_fields(model_file_sha256=""))
    assert not (tmp_path / "ran").exists()
    (problem,) = problems(job, load_catalogue())
    assert (problem.field, "not allowed" in problem.message) == ("model", True)


def test_job_needs_file_and_declared_best_metric(things: Path) -> None:
    (problem,) = problems(
        Job.from_fields(task="custom", model="", dataset=str(things), devices=("cpu",)), load_catalogue()
    )
    assert problem.field == "model"
    assert "Choose that file as the model" in problem.remedy
    for name in ("exact", "loss"):
        assert problems(custom_job(things, EXAMPLE, best_by=name), load_catalogue()) == []
        TASK.create_objective(custom_job(things, EXAMPLE, best_by=name), DatasetInfo((), 3))
    with pytest.raises(TaskError, match=r"“exactly” is not a metric of counting\.py\. Did you mean “exact”"):
        TASK.create_objective(custom_job(things, EXAMPLE, best_by="exactly"), DatasetInfo((), 3))


BRIGHTNESS = """
import torch
from torch import nn
from engine.tasks.custom.interface import CustomTask

class Brightness(CustomTask):
    annotations = ("classes",)
    image_size = 32
    statistics = (0.25, 0.75), (0.125, 0.375)

    def build_model(self, classes, channels):
        return nn.Sequential(nn.Conv2d(channels, 1, 1), nn.Flatten(), nn.Linear(1024, classes))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""


def write_insects(tmp_path: Path) -> Path:
    """Write a dataset of two classes to `tmp_path / "data"`. Return a path for the task's file, which isn't written."""
    for number in range(12):
        write_noise(tmp_path / "data" / ("ant", "bee")[number % 2] / f"{number}.png", seed=number)
    return tmp_path / "mine.py"


def test_folder_of_known_format_needs_no_datasets(tmp_path: Path) -> None:
    file = write_insects(tmp_path)
    file.write_text(BRIGHTNESS)
    job = custom_job(tmp_path / "data", file)
    assert TASK.open_splits(job).classes == ("ant", "bee")
    assert (TASK.get_image_size(job), TASK.get_normalization(job, 3)) == (32, ((0.5,) * 3, (0.25,) * 3))
    assert TASK.get_normalization(job, 2) == ((0.25, 0.75), (0.125, 0.375))
    model = TASK.build_model(job.with_fields(freeze_epochs=1), 2, 3)
    assert model(torch.zeros(4, 3, 32, 32)).shape == (4, 2)
    assert [name for name, each in model.named_parameters() if each.requires_grad] == ["2.weight", "2.bias"]
    vals = [TASK.open_splits(job.with_fields(seed=seed)).val for seed in (0, 1)]
    assert vals[0].path(0) != vals[1].path(0)
    assert TASK.create_batch_transform(job, RandomStreams(0), rank=0) is None
    objective = TASK.create_objective(job, DatasetInfo(("ant", "bee"), 3))
    assert objective.entry.metrics[0].id == "loss"
    assert objective.create_blank_targets(torch.zeros(5, 3, 32, 32)).dtype == torch.int64
    file.write_text(BRIGHTNESS.replace('"classes"', '"class"'))
    with pytest.raises(TaskError, match=r"there are no annotations “class”\. Did you mean “classes”"):
        TASK.open_splits(custom_job(tmp_path / "data", file))
    file.write_text(BRIGHTNESS.replace('("classes",)', "()"))
    with pytest.raises(TaskError, match=r"mine\.py: it has no annotations, and datasets returns nothing"):
        TASK.open_splits(custom_job(tmp_path / "data", file))


def test_inspection_lists_files_without_problems(things: Path) -> None:
    report = inspect(
        str(things), val_fraction=0.2, seed=0, kinds=TASK.entry.annotations, progress=lambda done, total: None
    )
    assert (report.format, report.problems, report.classes) == ("files", (), ())
    assert [split.images for split in report.splits] == [21]
    assert len(report.examples) == 10  # every second image, and not the table


def test_as_image_converts_any_input() -> None:
    assert convert_to_image(np.zeros((100, 6), np.float32)[None, 0]).shape == (1, 6, 3)
    assert convert_to_image(np.zeros(7, np.float32)).shape == (64, 64, 3)
    assert convert_to_image(np.array([[[0.0]], [[1.0]], [[2.0]]])).tolist() == [[[0, 128, 255]]]
    image = np.zeros((3, 3, 3), np.uint8)
    assert convert_to_image(image) is image
    stretched = convert_to_image(np.linspace(1, -1, 5 * 4 * 4, dtype=np.float32).reshape(5, 4, 4))
    assert (stretched.dtype, stretched.min(), stretched.max()) == (np.uint8, 0, 255)
    two_channels = convert_to_image(np.array([[[-1.0, -0.6, 1.0]], [[5.0, 9.0, 8.0]]]))
    assert two_channels.tolist() == [[[0] * 3, [51] * 3, [255] * 3]]


@pytest.mark.parametrize("format_", ["imagefolder", "coco", "table:color"])
def test_inspector_ignores_format_of_custom_tasks(tmp_path: Path, format_: str) -> None:
    file = write_insects(tmp_path)
    file.write_text(BRIGHTNESS)
    job = custom_job(tmp_path / "data", file, format=format_)
    assert "--format" not in inspector_options(job, load_catalogue())
    if format_ == "imagefolder":
        assert TASK.open_splits(job).format == "imagefolder"
    else:
        with pytest.raises(DatasetError):
            TASK.open_splits(job)


@pytest.mark.parametrize("kind", ["sounds", "stereo pairs", "classes of a plug-in"])
def test_annotations_of_plugins_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    added = replace(
        imagefolder.FORMAT,
        id="added",
        kinds=(kind,),
        detect=lambda tree: [replace(each, kinds=(kind,)) for each in imagefolder.FORMAT.detect(tree)],
    )
    known = Registry("footplate.formats", {**registry.FORMATS.built_in, "added": added}, registry._make_plugin_format)
    for module in (registry, custom, open_splits):
        monkeypatch.setattr(module, "FORMATS", known)
    file = write_insects(tmp_path)
    file.write_text(BRIGHTNESS.replace('"classes"', f'"{kind}"'))
    assert TASK.open_splits(custom_job(tmp_path / "data", file)).classes == ("ant", "bee")
