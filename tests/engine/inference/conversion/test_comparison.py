"""Comparison of converted files with their models: samples, outputs, metrics and latency."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from engine.contract.images import Framing, Preprocessing
from engine.contract.inference.conversion import ComparedFile, Difference, OnnxOptions
from engine.inference.conversion import comparison
from engine.inference.conversion.comparison import compare_metrics, compare_outputs, load_samples, measure_latencies
from engine.inference.conversion.convert import create_difference_problem, report_int8_losses
from engine.inference.conversion.exportable import BATCH, HEIGHT, WIDTH, Exportable, prepare_for_export
from engine.inference.conversion.failure import CannotConvert
from tests.support.edges import make_edged
from tests.support.plain_models import ChannelScores, make_trained_model


def export_of(module: nn.Module, **axes: int) -> Exportable:
    names = {number: name for name, number in axes.items()}
    return Exportable(module, "inputs", "outputs", {0: BATCH} | names, Tensor.contiguous)


@pytest.mark.parametrize(
    ("task", "size", "shape"), [("classification", 16, (3, 3, 16, 16)), ("point_segmentation", 0, (3, 3, 512))]
)
def test_samples_are_random_without_the_dataset(task: str, size: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    fields = {"points": 512} if task == "point_segmentation" else {"image_size": size}
    model = make_trained_model(task, nn.Identity(), size=size, dataset=str(tmp_path / "none"), **fields)
    samples = load_samples(model)
    assert (samples.kind, samples.val, samples.train) == ("random", None, None)
    assert samples.inputs.shape == shape
    lowest, highest = samples.inputs.aminmax()
    assert (float(lowest), float(highest)) == (0, 1) if size else lowest < 0


def test_outputs_are_compared_for_each_batch_size() -> None:
    model = make_trained_model("classification", ChannelScores(pooled=True))
    inputs, shapes = torch.rand(3, 3, 16, 16), []

    def run_file(batch: Tensor) -> Tensor:
        shapes.append(tuple(batch.shape))
        return 10 * batch.mean((2, 3)) - 0.25 * (len(batch) == 3)

    for export in (export_of(model.module), export_of(model.module, width=3)):
        one, three = compare_outputs(model, export, run_file, inputs)
        assert one == Difference(batch_size=1, difference=0.0, largest_output=float(10 * inputs[:1].mean((2, 3)).max()))
        assert (three.batch_size, three.difference) == (3, pytest.approx(0.25, abs=1e-5))
    assert shapes == [(1, 3, 16, 16), (3, 3, 16, 16), (1, 3, 16, 16), (3, 3, 16, 32)]
    one, _ = compare_outputs(model, export, lambda batch: batch.mean((2, 3))[:, :1], inputs)
    assert one.difference == float("inf")


class _Maps(nn.Module):
    """Network that returns one of the channels of its input as edge map, after another map."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([-inputs[:, 0], inputs[:, 0] - 0.5], 1)


def test_metrics_are_compared_on_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = str(make_edged(tmp_path, {"train": 1, "val": 5}))
    fields = {"dataset": dataset, "image_size": 32, "model": "hed_bn"}
    model = make_trained_model("edge_detection", _Maps(), size=32, **fields)
    samples, reported = load_samples(model), list[float]()
    val = samples.val
    assert val is not None
    assert samples.train is not None
    assert (samples.kind, len(samples.inputs), len(val), len(samples.train)) == ("validation", 3, 5, 1)
    export = export_of(model.module)
    same = compare_metrics(model, export, lambda batch: batch[:, :1] - 0.5, val, reported.append)
    other = compare_metrics(model, export, lambda batch: batch[:, :1] * 0 + 5, val, reported.append)
    assert (same.samples, reported) == (5, [0.6, 1.0] * 2)
    assert same.torch == same.file == other.torch != other.file
    assert "loss" not in same.torch.keys() | same.file.keys()
    monkeypatch.setattr(comparison, "MAX_METRICS_S", -1.0)
    assert compare_metrics(model, export, lambda batch: batch[:, :1], val, reported.append).samples == 3


def test_latency_is_the_median_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 0.0, 0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    class Slow(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            nonlocal now
            assert len(inputs) == 1
            now += 1.5
            return inputs.mean((2, 3))

    def run_file(batch: Tensor) -> Tensor:
        nonlocal now, calls
        calls += 1
        now += 9.0 if calls == 1 else 0.002 + 0.0001 * calls**2  # the first call is left out
        return batch

    model = make_trained_model("classification", Slow())
    latencies = measure_latencies(model, export_of(model.module), run_file, torch.rand(3, 3, 16, 16))
    assert latencies == pytest.approx((2 + 0.1 * (16**2 + 17**2) / 2, 1500))
    assert calls == 31


def test_report_int8_losses_reports_lower_percentages() -> None:
    model = make_trained_model("classification", nn.Identity())
    before, after = {"top1": 0.75, "top5": 0.75, "loss": 2.0}, {"top1": 0.5, "top5": 0.745, "loss": 1.0}
    values = {"name": "model-int8.onnx", "runtime": "", "compared_on": "validation", "differences": ()}
    compared = msgspec.convert({**values, "measures": after, "torch_measures": before}, ComparedFile)
    (problem,) = report_int8_losses(model, compared)
    assert (problem.field, problem.severity) == ("int8", "warning")
    assert problem.message == "In int8, Top-1 accuracy falls from 75.0% to 50.0%."
    assert not report_int8_losses(model, msgspec.structs.replace(compared, measures=before, torch_measures=after))
    assert not report_int8_losses(model, msgspec.structs.replace(compared, measures={}))


@pytest.mark.parametrize(
    ("found", "details"),
    [
        ([(1, 0.1, 0), (3, 0.5, 0), (3, 0.2, 0)], "outputs differ by up to 5.0e-01."),
        ([(1, 0.9, 1), (3, 0.1, 4), (3, 0.5, 2)], "4 detections of 3 images differ."),
    ],
)
def test_create_difference_problem_names_the_worst(found: list[tuple[int, float, int]], details: str) -> None:
    differences = tuple(
        Difference(batch_size=size, difference=difference, largest_output=1.0, unmatched=unmatched)
        for size, difference, unmatched in found
    )
    compared = ComparedFile(name="model.onnx", runtime="", compared_on="random", differences=differences)
    problem = create_difference_problem(compared)
    assert problem.message == f"model.onnx does not give what the model gives, and was not kept: {details}"
    assert problem.remedy.startswith("Train longer" if "detections" in details else "Convert into another format")


@pytest.mark.parametrize(
    ("task", "framing", "options", "names", "axes"),
    [
        ("classification", "crop", {}, ("images", "logits"), {0: BATCH}),
        ("classification", "crop", {"dynamic_size": True}, ("images", "logits"), {0: BATCH, 1: HEIGHT, 2: WIDTH}),
        (
            "segmentation",
            "crop",
            {"dynamic_size": True, "preprocessing": False},
            ("inputs", "logits"),
            {0: BATCH, 2: HEIGHT, 3: WIDTH},
        ),
        ("classification", "", {}, ("inputs", "logits"), {0: BATCH}),
        ("point_segmentation", "", {}, ("points", "logits"), {0: BATCH}),
    ],
)
def test_export_takes_unnormalized_inputs(
    task: str, framing: Framing, options: dict[str, bool], names: tuple[str, str], axes: dict[int, str]
) -> None:
    model = make_trained_model(task, nn.Identity())
    is_cloud = task == "point_segmentation"
    mean, std = ((0.0, 0.0, 0.0, 0.25), (0.5, 0.25, 0.125, 4.0)) if is_cloud else ((0.0, 0.5, 0.25), (0.5, 0.25, 0.125))
    model.preprocessing = Preprocessing(framing=framing, mean=mean, std=std)
    export = prepare_for_export(model, OnnxOptions(**options))
    assert ((export.input_name, export.output_name), export.axes) == (names, axes)
    values = torch.randint(0, 256, (2, len(mean), 4, 6)) / 255
    if is_cloud:
        values[:, :3] -= values[:, :3].mean((2, 3), keepdim=True)
    inputs = (values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    inputs = inputs.flatten(2) if is_cloud else inputs
    given = export.to_input(inputs)
    assert given.dtype == (torch.uint8 if names[0] == "images" else torch.float32)
    moved = given + torch.tensor([2.0, 3, 4, 0]) if is_cloud else given
    torch.testing.assert_close(export.module(moved), inputs)


def test_detectors_with_unknown_selection_are_refused() -> None:
    with pytest.raises(CannotConvert, match="The post-processing of Identity can't be written into a file"):
        prepare_for_export(make_trained_model("detection", nn.Identity()), OnnxOptions())
