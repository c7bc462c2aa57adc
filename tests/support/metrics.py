"""Metrics that several ranks accumulate together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.metrics.base import Metric
from engine.tasks.base import Objective


def compute_on_ranks(
    objective: Objective, outputs: Tensor, targets: Tensor, ranks: int, batches: int | Sequence[int] = 1
) -> Metric:
    """Compute a metric as distributed training does: give each batch to the next rank, then combine the ranks' metrics.

    `batches` is the size of all batches, or a sequence with the size of each.
    """
    metrics = [objective.create_metric() for _ in range(ranks)]
    for index, batch in enumerate(zip(outputs.split(batches), targets.split(batches), strict=True)):
        metrics[index % ranks].update(*batch)
    total = objective.create_metric()
    total.counters = torch.stack([each.counters for each in metrics]).sum(0)
    total.rows = torch.cat([each.rows for each in metrics])
    return total
