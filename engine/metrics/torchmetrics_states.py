"""Merging of the states of torchmetrics metrics over the ranks.

torchmetrics merges states in `compute` only if they have the same number of tensors, with the same number of
dimensions, on every rank (torchmetrics/metric.py, `_sync_dist`). This isn't the case on ranks with fewer batches, and
on the first stages of a pipeline, which have no data. Therefore its merging is disabled. Instead, the states of the
ranks with data are merged here by the reductions that the metrics declare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

State = tuple[int, dict[str, Any]]
"""Number of batches that a metric has seen, and its tensors and lists of tensors, by name."""


def list_metrics(metric: object) -> list[Any]:
    """Return a torchmetrics metric and all metrics inside it, such as the one that a wrapper contains.

    Return [] for other objects.
    """
    modules = metric.modules() if isinstance(metric, nn.Module) else ()
    return [module for module in modules if hasattr(module, "_reductions")]


def disable_sync(metric: nn.Module) -> None:
    """Prevent `compute` of a metric from merging states.

    Until `load_merged` is called, `compute` returns the value for this rank's batches.
    """
    for module in list_metrics(metric):
        module.distributed_available_fn = bool  # returns False without arguments


def move_states_to_cpu(metric: nn.Module) -> list[State]:
    """Move a metric to the CPU, and return the state of each metric in `list_metrics(metric)`."""
    modules = list_metrics(metric.cpu())
    return [(module.update_count, {name: getattr(module, name) for name in module._reductions}) for module in modules]


def load_merged(metric: nn.Module, by_rank: Sequence[list[State]]) -> None:
    """Merge the states of all ranks, and load them into a metric. If no rank has data, the metric does not change.

    `by_rank` has the result of `move_states_to_cpu` on each rank.
    """
    states_of_modules = zip(*by_rank, strict=True)  # the states of all ranks, for each module
    for module, states in zip(list_metrics(metric), states_of_modules, strict=True):
        states_with_data = [values for count, values in states if count]
        if states_with_data:
            module._update_count = sum(count for count, _ in states)
            for name, reduction in module._reductions.items():
                setattr(module, name, _merge_values([values[name] for values in states_with_data], reduction))


def _merge_values(values: list[Any], reduction: Callable[[Tensor], Tensor] | None) -> Any:
    """Merge the values of a state on several ranks by the reduction that the metric declares."""
    if isinstance(values[0], list):  # lists of batches, which `compute` concatenates
        return [tensor for batches in values for tensor in batches]
    if len(values) == 1:
        return values[0]
    stacked = torch.stack(values)
    return stacked if reduction is None else reduction(stacked)
