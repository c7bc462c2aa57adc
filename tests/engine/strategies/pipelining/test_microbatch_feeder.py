"""Batches on their way from the rank of the first stage to the rank of the last stage."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from engine.data.loading.base_loader import Batch
from engine.strategies.pipelining import microbatch_feeder
from engine.strategies.pipelining.microbatch_feeder import PADDING, MicrobatchFeeder


class Wire:
    """Replacement for `torch.distributed` that connects two ranks. Like gloo, it sends bytes and no types."""

    def __init__(self) -> None:
        self.rank = 0
        self._sent: dict[tuple[object, int], list[Tensor]] = {}

    def get_rank(self) -> int:
        return self.rank

    def isend(self, tensor: Tensor, to: int, group: object) -> Any:
        self._sent.setdefault((group, to), []).append(tensor.clone())
        return Mock()

    def recv(self, tensor: Tensor, _source: int, group: object) -> None:
        sent = self._sent[group, self.rank].pop(0)
        assert tensor.nbytes == sent.nbytes
        tensor.copy_(sent.view(torch.uint8).view(tensor.dtype).view(tensor.shape))


@pytest.mark.parametrize(
    ("targets", "blank"),
    [
        (torch.tensor([3, 1, 2, 0]), torch.tensor(0)),
        (torch.tensor([3, 1]), torch.tensor(0)),
        (torch.tensor([], dtype=torch.int64), torch.tensor(0)),
        (torch.rand(3, 2), torch.zeros(2)),
        (torch.rand(1, 5, 6, dtype=torch.float64), torch.zeros(5, 6, dtype=torch.float64)),
    ],
)
def test_last_rank_gets_the_padded_targets(monkeypatch: pytest.MonkeyPatch, targets: Tensor, blank: Tensor) -> None:
    wire = Wire()
    monkeypatch.setattr(microbatch_feeder, "dist", wire)
    count = len(targets)
    batch = Batch(torch.arange(count * 12.0).view(count, 3, 2, 2), targets, global_size=7, wait_s=0.0)
    fed = []
    for wire.rank in (0, 1):
        feeder = MicrobatchFeeder(
            first=0, last=1, size=4, device=torch.device("cpu"), group="targets", control="counts", blank_target=blank
        )  # type: ignore[arg-type]
        fed.append(feeder.feed(batch if wire.rank == 0 else None))
    first, last = fed
    assert first.targets is None
    expected = batch.inputs[torch.arange(4) % count] if count else torch.zeros(4, 3, 2, 2)
    assert torch.equal(first.inputs, expected)
    assert last.inputs is None
    assert last.targets.dtype == targets.dtype
    assert torch.equal(last.targets[:count], targets)
    assert (last.targets[count:] == PADDING).all()
    assert [(each.images, each.global_size) for each in fed] == [(count, 7)] * 2
