"""Model that is loaded from a run. Its validation metrics equal those of the run's last validation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import tifffile
import torch
from torch import Tensor, nn

from engine.contract.job import save_job
from engine.contract.problems import Problem
from engine.contract.protocol import ENCODE
from engine.data.datasets.images import DatasetError
from engine.inference import trained_model
from engine.inference.conversion.comparison import BATCH_SIZES, load_samples
from engine.inference.sweep import Partition, predict_batches
from engine.inference.trained_model import (
    CannotLoad,
    TrainingFacts,
    convert_errors,
    find_checkpoint,
    load,
    read_training,
)
from engine.runs.folder import RunFolder
from engine.training.checkpointing.checkpoint_files import write_checkpoint
from tests.support.cases import mark_long_cases
from tests.support.consent import permit_model_file
from tests.support.plain_models import ChannelScores, make_trained_model
from tests.support.trained_runs import COUNTING, COUNTS, DATASETS, TrainedRun


@pytest.mark.parametrize("task", mark_long_cases(DATASETS, everyday=["classification", "segmentation", "detection"]))
def test_loaded_model_matches_the_runs_metrics(task: str, trained: Callable[[str], TrainedRun]) -> None:
    of = trained(task)
    permit_model_file(COUNTING)
    model = load(of.run, "last")
    metric = model.objective.create_metric()
    indices: list[int] = []
    val = model.task.open_splits(of.job).val
    for rank in range(2):
        for swept in predict_batches(model, val, batch_size=3, partition=Partition(rank, 2)):
            metric.update(swept.outputs, swept.targets)
            indices += swept.samples.tolist()
    assert sorted(indices) == list(range(len(val)))
    assert metric.compute() == pytest.approx(of.measures, abs=1e-5)


def test_for_display_undoes_the_normalization(trained: Callable[[str], TrainedRun]) -> None:
    model = load(trained("classification").run, "last")
    image = np.full((model.size, model.size, 3), (200, 100, 50), np.uint8)
    np.testing.assert_array_equal(model.to_display(model.inputs([image])[0]), image)


def test_images_of_several_sizes_keep_their_order() -> None:
    network = ChannelScores()
    model = make_trained_model("segmentation", network, batch_size=3)
    sides, classes = [(16, 16), (20, 16), (16, 40), (8, 8), (16, 16)], [0, 1, 2, 1, 0]
    images = []
    for each, number in zip(sides, classes, strict=True):
        images.append(np.zeros((*each, 3), np.uint8))
        images[-1][..., number] = 250
    for batch_size, tile, overlap, expected in (
        (None, None, 0.2, [3, 2]),
        (2, None, 0.2, [2, 2, 1]),
        (2, 16, 0.0, [1, 1, 1, 1, 2, 1, 1]),  # in the first two batches, an image has several tiles
        (5, 16, 0.9, [3, 1, 1, 1, 1, 1, 5, 5, 5, 5, 5]),
    ):
        network.inputs.clear()
        found = model.predict(images, batch_size=batch_size, tile=tile, overlap=overlap)
        assert [each.plane.shape for each in found] == sides  # type: ignore[attr-defined]
        assert [np.unique(each.plane).tolist() for each in found] == [[number] for number in classes]  # type: ignore[attr-defined]
        assert [len(each) for each in network.inputs] == expected
    (gray,) = make_trained_model("segmentation", nn.Identity(), channels=1).predict(images[1][..., 1], tile=16)
    assert gray.plane.shape == sides[1]  # type: ignore[attr-defined]


def test_all_problems_of_a_dataset_are_reported() -> None:
    problems = [Problem("dataset", "No images.", "Add some."), Problem("val_fraction", "Too small.", "Set more.")]
    with pytest.raises(CannotLoad) as refused, convert_errors():
        raise DatasetError(problems)
    assert list(refused.value.problems) == problems


def test_objective_has_no_class_weights() -> None:
    model = make_trained_model("classification", nn.Identity())
    job = model.job.with_fields(class_weights="balanced")
    facts = TrainingFacts(job, model.task, model.classes, model.channels, model.size, model.preprocessing)
    outputs, targets = torch.rand(4, 3), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(facts.create_objective().loss(outputs, targets), model.objective.loss(outputs, targets))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_outputs_have_the_precision_of_the_training(precision: str, dtype: torch.dtype | None) -> None:
    class Precision(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            dtypes.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
            return inputs

    dtypes: list[torch.dtype | None] = []
    model = make_trained_model("segmentation", Precision(), precision=precision)
    assert model.outputs(torch.zeros(1, 3, 16, 16)).dtype == torch.float32
    assert dtypes == [dtype]


def test_batches_are_split_if_memory_runs_out() -> None:
    network = ChannelScores(pooled=True, max_images=2)
    inputs = torch.rand(7, 3, 16, 16)
    outputs = make_trained_model("classification", network).outputs(inputs)
    torch.testing.assert_close(outputs, 10 * inputs.mean((2, 3)))
    assert [len(each) for each in network.inputs] == [2, 2, 2, 1]


def test_center_of_an_image_is_cropped() -> None:
    model = make_trained_model("classification", ChannelScores(pooled=True), val_crop=0.5)
    model.preprocessing = msgspec.structs.replace(model.preprocessing, framing="crop")
    image = np.zeros((32, 32), np.uint8)
    image[10:22, 10:22] = 255
    with pytest.raises(ValueError, match="not uint8 of 32 x 32 x 1"):
        model.inputs([image])
    with pytest.raises(ValueError, match="not float32 of 32 x 32 x 3"):
        model.inputs([np.zeros((32, 32, 3), np.float32)])
    (found,) = model.inputs([image[..., None].repeat(3, 2)])
    inside = np.zeros((16, 16), np.float32)
    inside[2:14, 2:14] = 1
    np.testing.assert_array_equal(found.numpy(), [inside] * 3)


def test_bands_of_files_are_scaled_as_in_training(tmp_path: Path) -> None:
    network = ChannelScores(pooled=True)
    model = make_trained_model("classification", network, channels=2)
    model.preprocessing = msgspec.structs.replace(model.preprocessing, low=(0.0, 1000.0), high=(2000.0, 3000.0))
    bands = np.full((16, 16, 2), (500, 2500), np.uint16)
    tifffile.imwrite(tmp_path / "bands.tif", bands, photometric="minisblack", planarconfig="contig")
    model.predict(tmp_path / "bands.tif")
    assert network.inputs[0].mean((2, 3)).tolist()[0] == pytest.approx([0.25, 0.75], abs=0.01)


def test_converted_model_is_compared_on_validation_images(trained: Callable[[str], TrainedRun]) -> None:
    model = load(trained("classification").run, "last")
    samples = load_samples(model)
    assert samples.train is not None
    assert samples.val is not None
    assert (len(samples.train), len(samples.val)) == tuple(3 * count for count in COUNTS.values())
    assert samples.inputs.shape == (max(BATCH_SIZES), 3, model.size, model.size)


@pytest.mark.parametrize(
    ("checkpoint", "file"),
    [
        ("last", "last.pt"),
        ("last.pt", "last.pt"),
        ("3", "epoch-3-step-12.pt"),
        ("epoch-3-step-12", "epoch-3-step-12.pt"),
    ],
)
def test_checkpoints_are_found_by_name_and_epoch(tmp_path: Path, checkpoint: str, file: str) -> None:
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    for name in ("last.pt", "epoch-3-step-12.pt", "epoch-4-step-16.pt"):
        (run.checkpoints / name).touch()
    assert find_checkpoint(run, checkpoint) == run.checkpoints / file
    with pytest.raises(CannotLoad) as refused:
        find_checkpoint(run, "best")
    (problem,) = refused.value.problems
    assert (problem.field, problem.remedy) == ("checkpoint", "It has: last, 3, 4.")


def test_only_run_and_checkpoint_are_needed(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trained("classification")
    run = RunFolder(Path(shutil.copytree(of.run.path, tmp_path / "run")))
    expected = load(of.run, "last")
    save_job(of.job.with_fields(weights_file="/gone.pth", dataset="/gone"), run.job_file)
    found = load(run, "last")
    assert (found.preprocessing, found.classes, found.size) == (expected.preprocessing, expected.classes, expected.size)
    assert not found.module.training
    inputs = torch.rand(2, 3, found.size, found.size)
    assert torch.equal(found.outputs(inputs), expected.outputs(inputs))

    write_checkpoint(expected.module.state_dict(), run.checkpoints / "plain.pt")
    assert torch.equal(load(run, "plain").outputs(inputs), expected.outputs(inputs))
    write_checkpoint({"model": [1, 2]}, run.checkpoints / "other.pt")
    write_checkpoint(nn.Linear(2, 3).state_dict(), run.checkpoints / "linear.pt")
    (run.checkpoints / "torn.pt").write_bytes((run.checkpoints / "last.pt").read_bytes()[:-99])
    (run.checkpoints / "folder.pt").mkdir()
    for name, text in (
        ("folder", "can't be read: Is a directory"),
        ("torn", "is damaged: "),
        ("other", "holds no model"),
        ("linear", "is not a checkpoint of the run's model: "),
    ):
        with pytest.raises(CannotLoad, match=text) as refused:
            load(run, name)
        assert [problem.field for problem in refused.value.problems] == ["checkpoint"]
    assert refused.value.problems[0].message.endswith('"weight", "bias".')
    save_job(of.job.with_fields(model=str(tmp_path / "gone.py")), run.job_file)
    with pytest.raises(CannotLoad) as refused:
        load(run, "last")
    assert [problem.field for problem in refused.value.problems] == ["model"]
    with monkeypatch.context() as patch:
        patch.setattr(trained_model, "TASKS", {})
        with pytest.raises(CannotLoad, match="The run's task “classification” is not installed"):
            read_training(run)
    planned = of.run.read_plan()
    assert planned is not None
    run.events_file.write_bytes(ENCODE.encode(msgspec.structs.replace(planned, preprocessing=None)) + b"\n")
    save_job(of.job.with_fields(dataset="/gone"), run.job_file)
    with pytest.raises(CannotLoad) as refused:
        read_training(run)
    assert [problem.field for problem in refused.value.problems] == ["dataset"]
    run.events_file.unlink()
    with pytest.raises(CannotLoad, match="has not started training"):
        read_training(run)
    run.job_file.unlink()
    with pytest.raises(CannotLoad, match="The job of run can't be read"):
        read_training(run)
