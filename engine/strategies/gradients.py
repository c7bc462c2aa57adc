"""Gradients between the backward passes and the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 << 20
"""Gradients are averaged in buckets of this size."""


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
    joining = []
    for bucket in _buckets(gradients):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        joining.append((bucket, flat, dist.all_reduce(flat, group=group, async_op=True)))
    for bucket, flat, work in joining:
        assert work is not None
        work.wait()
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    """`gradients` in order, in lists of one type and of about `BUCKET_BYTES`."""
    buckets: list[list[Tensor]] = []
    held = 0
    for gradient in gradients:
        if not buckets or held + gradient.nbytes > BUCKET_BYTES or buckets[-1][0].dtype != gradient.dtype:
            buckets.append([])
            held = 0
        buckets[-1].append(gradient)
        held += gradient.nbytes
    return buckets
