"""Gradients between the backward passes and the optimizer, and parameters after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 << 20
"""Tensors travel in buckets of this size."""


def lay_out(parameters: Iterable[nn.Parameter]) -> None:
    """Gives gradients the strides of their parameters, which fused optimizers take for granted.

    Autograd sees to that where it adds gradients up; the zero-bubble schedules of torch add those of the weights up
    by themselves, and convolutions between channels-last activations then give other strides.
    """
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)


def add_up(gradients: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Replaces each of `gradients` by its sum over `group`, whose ranks give them in the same order."""
    _in_buckets(gradients, lambda flat: dist.all_reduce(flat, group=group, async_op=True))


def broadcast(parameters: Sequence[Tensor], source: int, group: dist.ProcessGroup | None) -> None:
    """Gives the `parameters` of the rank `source` to all of `group`, whose ranks give their own in the same order."""
    _in_buckets(parameters, lambda flat: dist.broadcast(flat, source, group=group, async_op=True))


@torch.no_grad()
def _in_buckets(tensors: Sequence[Tensor], begin: Callable[[Tensor], dist.Work | None]) -> None:
    """Replaces `tensors` by what the collective that `begin` begins makes of them, several of them flat in one."""
    joining = []
    for bucket in _buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        joining.append((bucket, flat, begin(flat)))
    for bucket, flat, work in joining:
        assert work is not None
        work.wait()
        parts = flat.split([tensor.numel() for tensor in bucket])
        for tensor, part in zip(bucket, parts, strict=True):
            tensor.copy_(part.view_as(tensor))


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """`tensors` in order, in lists of one type and of about `BUCKET_BYTES`."""
    buckets: list[list[Tensor]] = []
    held = 0
    for tensor in tensors:
        if not buckets or held + tensor.nbytes > BUCKET_BYTES or buckets[-1][0].dtype != tensor.dtype:
            buckets.append([])
            held = 0
        buckets[-1].append(tensor)
        held += tensor.nbytes
    return buckets
