"""Results of the workers of an evaluation, merged in the order of the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.contract.inference.evaluation import EvaluateRequest, SkippedSample
from engine.inference.evaluation.measure import WorkerResults, evaluate_shard, merge_results, name_results_file
from engine.tasks.analysis import SampleColumns
from tests.support.boxed import ONE, DrawnImage, voc
from tests.support.plain_models import ChannelScores, make_trained_model, open_shard
from tests.support.trained_runs import make_colors


@pytest.mark.parametrize(("batch_size", "sizes"), [(None, [3, 2, 3]), (4, [3, 4, 1])])
def test_batches_are_those_of_a_device_in_the_training(
    tmp_path: Path, batch_size: int | None, sizes: list[int]
) -> None:
    dataset, network = make_colors(tmp_path, {"train": 1, "val": 3}), ChannelScores(pooled=True)
    fields = {"dataset": str(dataset), "batch_size": 7, "devices": ("cpu",) * 3}
    model = make_trained_model("classification", network, **fields)
    model.classes = ("blue", "green", "red")
    (dataset / "val/green/0.png").write_bytes(b"no image")
    with open_shard(model) as shard:
        shard.folder = tmp_path
        evaluate_shard(EvaluateRequest(run="", batch_size=batch_size), model, shard)
    assert [len(inputs) for inputs in network.inputs] == sizes
    merged = merge_results([tmp_path / name_results_file(0)])
    assert merged.samples.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert merged.skipped == (SkippedSample(path="val/green/0.png", reason="it is not a readable image"),)


def test_objects_are_measured_at_the_scale_of_their_file(tmp_path: Path) -> None:
    class NoObjects(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return torch.full((len(inputs), 1, 6), -1.0)

    drawn, scales = {"a": ONE, "b": DrawnImage(40, 20, ONE.rectangles)}, list[float]()
    dataset = voc(tmp_path, {"train": {"c": ONE}, "val": drawn})
    model = make_trained_model("detection", NoObjects(), size=40, dataset=str(dataset), image_size=40)
    model.classes = ("cat",)
    analysis = model.objective.create_analysis(model.classes)
    create_metrics = analysis.create_metrics

    def record_scale(scale: float) -> Any:
        scales.append(scale)
        return create_metrics(scale)

    analysis.create_metrics = record_scale  # type: ignore[method-assign]
    model.objective.create_analysis = lambda _: analysis  # type: ignore[method-assign]
    with open_shard(model) as shard:
        shard.folder = tmp_path
        evaluate_shard(EvaluateRequest(run=""), model, shard)
    assert scales[1:] == [2, 1]


@pytest.mark.parametrize("without_losses", [False, True])
def test_results_of_workers_are_merged_in_order(tmp_path: Path, without_losses: bool) -> None:
    paths = [tmp_path / name_results_file(rank) for rank in range(3)]
    for path, batches in zip(paths, ([(4, 1), (3,)], [], [(0,), (2, 5)]), strict=True):
        results = WorkerResults(skipped=[(f"{path.name}.png", "gone")])
        for number, samples in enumerate(batches):
            levels = torch.tensor(samples) / 10
            shares = torch.stack([levels, 1 - levels], 1).numpy()
            columns = SampleColumns(
                levels.tolist(),
                [(each,) for each in samples],
                [(each, each) for each in samples],
                (levels / 2).tolist(),
                shares,
            )
            results.add(samples, None if without_losses and number == 0 else 2 * levels, columns)
        results.write(path)
    merged = merge_results(paths)
    assert merged.samples.tolist() == [0, 1, 2, 3, 4, 5]
    levels = np.arange(6) / 10
    assert (merged.losses is None) == without_losses
    if merged.losses is not None:
        assert merged.losses == pytest.approx(2 * levels)
    assert merged.columns.correct == pytest.approx(levels)
    assert merged.columns.true == [(each,) for each in range(6)]
    assert merged.columns.predicted == [(each, each) for each in range(6)]
    assert merged.columns.confidence == pytest.approx(levels / 2)
    assert merged.columns.probabilities == pytest.approx(np.stack([levels, 1 - levels], 1))
    assert merged.skipped == tuple(SkippedSample(path=f"results-{rank}.pt.png", reason="gone") for rank in range(3))
