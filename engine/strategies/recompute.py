"""Activation checkpointing: a block's activations are computed again in the backward pass instead of being kept.

Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from engine.models.blocks import blocks
from engine.torch_compat import buffers_of


def recomputed(function: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """`function`, which computes with `module`, so that it keeps its inputs alone and is computed again when needed.

    The second computation draws the same random numbers. It starts from the buffers that the first one started
    from, in copies that are then thrown away: BatchNorm's statistics move once, as without checkpointing, and
    what depends on a buffer that moves gives the same again. Where no gradients are computed, it is `function`.
    """

    def call(*inputs: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*inputs, **options)
        contexts = partial(_contexts, module)
        return checkpoint(function, *inputs, use_reentrant=False, context_fn=contexts, **options)

    return call


def checkpoint_blocks(model: nn.Module) -> int:
    """Makes each of `blocks(model)` compute its activations again; returns how many there are.

    The modules, their names and their state stay the same: only their classes change, to a subclass, which goes
    along when a block is copied or sharded.
    """
    found = blocks(model)
    for _, block in found:
        kind: Any = type(block)
        block.__class__ = _recomputing(kind)
    return len(found)


@cache
def _recomputing(kind: Any) -> Any:
    def forward(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        return recomputed(partial(kind.forward, self), self)(*inputs, **options)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of the first and of the second computation; called right before the first."""
    return nullcontext(), BuffersAsBefore(module)


class BuffersAsBefore:
    """Inside, the buffers of `module` are copies of what they were when this was made. May be entered again."""

    def __init__(self, module: nn.Module) -> None:
        # Modules in evaluation mode do not move their buffers.
        self._before: list[tuple[dict[str, Tensor | None], str, Tensor]] = [
            (buffers_of(part), name, buffer.detach().clone())
            for part in module.modules()
            if part.training
            for name, buffer in buffers_of(part).items()
            if buffer is not None
        ]
        self._own: list[Tensor | None] = []

    def __enter__(self) -> None:
        self._own = [buffers[name] for buffers, name, _ in self._before]
        for buffers, name, before in self._before:
            buffers[name] = before.clone()

    def __exit__(self, *error: object) -> None:
        for (buffers, name, _), own in zip(self._before, self._own, strict=True):
            buffers[name] = own
        self._own = []
