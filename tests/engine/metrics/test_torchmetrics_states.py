"""Merging of torchmetrics' states from several ranks. The result must equal the state of a metric with all samples."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score
from torchmetrics.regression import MeanSquaredError, PearsonCorrCoef, R2Score, SpearmanCorrCoef
from torchmetrics.wrappers import LambdaInputTransformer

from engine.metrics.torchmetrics_states import disable_sync, load_merged, metrics_in, states_of

CLASSES = 4


def classes() -> Any:
    return LambdaInputTransformer(MulticlassF1Score(CLASSES), lambda outputs: outputs.argmax(1))


@pytest.mark.filterwarnings("ignore:Metric `SpearmanCorrcoef` will save all targets")
@pytest.mark.parametrize(
    ("make", "labeled"),
    [
        pytest.param(lambda: MulticlassF1Score(CLASSES), True, id="sums"),
        pytest.param(lambda: MulticlassAUROC(CLASSES), True, id="lists of batches"),
        pytest.param(classes, True, id="wrapped"),
        pytest.param(lambda: 1 - MulticlassF1Score(CLASSES), True, id="composed"),
        pytest.param(PearsonCorrCoef, False, id="stacked"),
        pytest.param(SpearmanCorrCoef, False, id="lists of one dimension"),
        pytest.param(MeanSquaredError, False, id="a mean"),
        pytest.param(R2Score, False, id="a ratio"),
    ],
)
@pytest.mark.parametrize(
    "batches",
    [((8, 5), (8,), (3, 1, 1)), ((), (4, 8), ()), ((), (), (20, 7))],
    ids=["uneven", "one rank", "the last rank"],
)
def test_uneven_ranks_join_their_states(
    make: Callable[[], Any], labeled: bool, batches: tuple[tuple[int, ...], ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    single, ranks = make(), [make() for _ in batches]
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
        states = pickle.loads(pickle.dumps([states_of(metric) for metric in ranks]))
        for metric in ranks:
            load_merged(metric, states)
            assert metric.compute().item() == pytest.approx(single.compute().item(), abs=1e-6)


class Average(Metric):
    """Metric whose state is averaged over the ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("average", torch.tensor(0.0), dist_reduce_fx="mean")

    def update(self, values: torch.Tensor) -> None:
        self.average = values.mean()

    def compute(self) -> torch.Tensor:
        return self.average  # type: ignore[return-value]


def test_ranks_without_batches_do_not_count_in_an_average() -> None:
    ranks = [Average() for _ in range(4)]
    ranks[1].update(torch.tensor([2.0, 4.0]))
    ranks[2].update(torch.tensor([5.0]))
    load_merged(ranks[0], [states_of(metric) for metric in ranks])
    assert (ranks[0].compute().item(), ranks[0].update_count) == (4.0, 2)


def test_foreign_objects_are_rejected() -> None:
    assert metrics_in(object()) == metrics_in(torch.nn.Linear(1, 1)) == []
    assert all(isinstance(part, Metric) for part in metrics_in(classes()))
