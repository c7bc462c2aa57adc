"""Collectives for gradients and parameters, and the memory layout of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 << 20
"""Maximum size of a bucket of tensors, which are concatenated for a collective."""


def match_strides(parameters: Iterable[nn.Parameter]) -> None:
    """Give gradients the strides of their parameters, as fused optimizers require.

    Autograd keeps the strides equal when it accumulates gradients. torch's zero-bubble schedules accumulate gradients
    of weights themselves, and convolutions of channels-last activations then produce other strides.
    """
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


def sum_gradients(gradients: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum each gradient over the ranks of `group`, in place. All ranks must pass the gradients in the same order."""
    _run_in_buckets(gradients, lambda flat: dist.all_reduce(flat, group=group, async_op=True))


def broadcast(parameters: Sequence[Tensor], source: int, group: dist.ProcessGroup | None) -> None:
    """Broadcast `parameters` in place from rank `source` to all ranks in `group`.

    All ranks must pass the parameters in the same order.
    """
    _run_in_buckets(parameters, lambda flat: dist.broadcast(flat, source, group=group, async_op=True))


@torch.no_grad()
def _run_in_buckets(tensors: Sequence[Tensor], start_collective: Callable[[Tensor], dist.Work | None]) -> None:
    """Run a collective on `tensors` in place, one bucket after another.

    `start_collective` starts the collective on the flattened tensors of a bucket.
    """
    pending = []
    for bucket in _group_in_buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        pending.append((bucket, flat, start_collective(flat)))
    for bucket, flat, work in pending:
        assert work is not None
        work.wait()
        results = flat.split([tensor.numel() for tensor in bucket])
        for tensor, result in zip(bucket, results, strict=True):
            tensor.copy_(result.view_as(tensor))


def _group_in_buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return `tensors` as lists (buckets) of consecutive tensors with one type and at most `BUCKET_BYTES`.

    A larger tensor gets a bucket of its own.
    """
    buckets: list[list[Tensor]] = []
    filled_bytes = 0
    for tensor in tensors:
        if not buckets or filled_bytes + tensor.nbytes > BUCKET_BYTES or buckets[-1][0].dtype != tensor.dtype:
            buckets.append([])
            filled_bytes = 0
        buckets[-1].append(tensor)
        filled_bytes += tensor.nbytes
    return buckets
