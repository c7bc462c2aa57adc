"""Merging of torchmetrics' states from several ranks. The result must equal the state of a metric with all samples."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.metrics.torchmetrics_states import disable_sync, list_metrics, load_merged, move_states_to_cpu

CLASSES = 4


@pytest.fixture(scope="module")
def library() -> ModuleType:
    """Import torchmetrics. An import at the top would take two seconds in every process that collects tests."""
    return importlib.import_module("torchmetrics")


def classes(library: Any) -> Any:
    scores = library.classification.MulticlassF1Score(CLASSES)
    return library.wrappers.LambdaInputTransformer(scores, lambda outputs: outputs.argmax(1))


@pytest.mark.filterwarnings("ignore:Metric `SpearmanCorrcoef` will save all targets")
@pytest.mark.parametrize(
    ("make", "labeled"),
    [
        pytest.param(lambda library: library.classification.MulticlassF1Score(CLASSES), True, id="sums"),
        pytest.param(lambda library: library.classification.MulticlassAUROC(CLASSES), True, id="lists of batches"),
        pytest.param(classes, True, id="wrapped"),
        pytest.param(lambda library: 1 - library.classification.MulticlassF1Score(CLASSES), True, id="composed"),
        pytest.param(lambda library: library.PearsonCorrCoef(), False, id="stacked"),
        pytest.param(lambda library: library.SpearmanCorrCoef(), False, id="lists of one dimension"),
        pytest.param(lambda library: library.MeanSquaredError(), False, id="a mean"),
        pytest.param(lambda library: library.R2Score(), False, id="a ratio"),
    ],
)
@pytest.mark.parametrize(
    "batches",
    [((8, 5), (8,), (3, 1, 1)), ((), (4, 8), ()), ((), (), (20, 7))],
    ids=["uneven", "one rank", "the last rank"],
)
def test_uneven_ranks_join_their_states(
    library: ModuleType, make: Callable[[Any], Any], labeled: bool, batches: tuple[tuple[int, ...], ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    single, ranks = make(library), [make(library) for _ in batches]
    for _ in range(2):  # repeat after `reset`
        for metric in (single, *ranks):
            disable_sync(metric)
            metric.reset()
        for metric, sizes in zip(ranks, batches, strict=True):
            for size in sizes:
                outputs = torch.randn(size, CLASSES, generator=draw)
                targets = torch.randint(CLASSES, (size,), generator=draw)
                given = (outputs, targets) if labeled else (outputs[:, 0], outputs[:, 0] + outputs[:, 1])
                metric.update(*given)
                single.update(*given)
        states = pickle.loads(pickle.dumps([move_states_to_cpu(metric) for metric in ranks]))
        for metric in ranks:
            load_merged(metric, states)
            assert metric.compute().item() == pytest.approx(single.compute().item(), abs=1e-6)


def test_ranks_without_batches_do_not_count_in_an_average(library: Any) -> None:
    class Average(library.Metric):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.add_state("average", torch.tensor(0.0), dist_reduce_fx="mean")

        def update(self, values: torch.Tensor) -> None:
            self.average = values.mean()

        def compute(self) -> torch.Tensor:
            return self.average  # type: ignore[return-value]

    ranks = [Average() for _ in range(4)]
    ranks[1].update(torch.tensor([2.0, 4.0]))
    ranks[2].update(torch.tensor([5.0]))
    load_merged(ranks[0], [move_states_to_cpu(metric) for metric in ranks])
    assert (ranks[0].compute().item(), ranks[0].update_count) == (4.0, 2)


def test_foreign_objects_are_rejected(library: ModuleType) -> None:
    assert list_metrics(object()) == list_metrics(torch.nn.Linear(1, 1)) == []
    assert all(isinstance(metric, library.Metric) for metric in list_metrics(classes(library)))
