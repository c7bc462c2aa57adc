"""Model that is loaded from a run. Its validation metrics equal those of the run's last validation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.inference.conversion.comparison import BATCH_SIZES, load_samples
from engine.inference.sweep import Partition, predict_batches
from engine.inference.trained_model import CannotLoad, checkpoint_path, load
from tests.support.cases import some
from tests.support.consent import agreed
from tests.support.trained_runs import COUNTING, COUNTS, DATASETS, Trained


@pytest.mark.parametrize("task", some(DATASETS, everyday=["classification", "segmentation", "detection"]))
def test_loaded_model_matches_the_runs_metrics(task: str, trained: Callable[[str], Trained]) -> None:
    of = trained(task)
    agreed(COUNTING)
    model = load(of.run, "last")
    metric = model.objective.metric()
    indices: list[int] = []
    val = model.task.splits(of.job).val
    for rank in range(2):
        for swept in predict_batches(model, val, batch_size=3, partition=Partition(rank, 2)):
            metric.update(swept.outputs, swept.targets)
            indices += swept.samples.tolist()
    assert sorted(indices) == list(range(len(val)))
    assert metric.compute() == pytest.approx(of.measures, abs=1e-5)


def test_for_display_undoes_the_normalization(trained: Callable[[str], Trained]) -> None:
    model = load(trained("classification").run, "last")
    image = np.full((model.size, model.size, 3), (200, 100, 50), np.uint8)
    np.testing.assert_array_equal(model.to_display(model.inputs([image])[0]), image)


def test_converted_model_is_compared_on_validation_images(trained: Callable[[str], Trained]) -> None:
    model = load(trained("classification").run, "last")
    samples = load_samples(model)
    assert samples.train is not None
    assert samples.val is not None
    assert (len(samples.train), len(samples.val)) == tuple(3 * count for count in COUNTS.values())
    assert samples.inputs.shape == (max(BATCH_SIZES), 3, model.size, model.size)


def test_missing_checkpoint_lists_existing_ones(trained: Callable[[str], Trained]) -> None:
    with pytest.raises(CannotLoad) as refused:
        checkpoint_path(trained("classification").run, "7")
    (problem,) = refused.value.problems
    assert problem.field == "checkpoint"
    assert problem.remedy == "It has: best, last."
