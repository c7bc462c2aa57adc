"""Activation checkpointing: blocks recompute their activations in the backward pass instead of storing them.

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

from engine.models.blocks import list_blocks
from engine.torch_compat import buffers_of


def with_recomputation(function: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    """Wrap `function`, which calls `module`, so that only its inputs are stored and it runs again in the backward pass.

    The second run generates the same random numbers as the first. It uses temporary copies of the buffers with the
    values that they had before the first run. So BatchNorm updates its statistics only once, and results that depend on
    a changing buffer stay the same. If no gradients are computed, `function` is called unchanged.
    """

    def call(*inputs: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*inputs, **options)

        def create_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            """Return the contexts of the first and the second run. `checkpoint` calls this before the first run."""
            return nullcontext(), BufferSnapshot(module)

        return checkpoint(function, *inputs, use_reentrant=False, context_fn=create_contexts, **options)

    return call


def checkpoint_blocks(model: nn.Module) -> int:
    """Turn activation checkpointing on for each block of `model`, and return the number of blocks.

    The blocks are those that `list_blocks(model)` finds. Modules, names and state remain the same. Each block's class
    is replaced by a subclass, which survives copying and sharding.
    """
    blocks = list_blocks(model)
    for _, block in blocks:
        block_class: Any = type(block)
        block.__class__ = _create_recomputing_class(block_class)
    return len(blocks)


@cache
def _create_recomputing_class(block_class: Any) -> Any:
    """Create a subclass of `block_class` with the same name, whose forward pass is recomputed in the backward pass."""

    def forward(self: nn.Module, *inputs: Any, **options: Any) -> Any:
        return with_recomputation(partial(block_class.forward, self), self)(*inputs, **options)

    return type(block_class.__name__, (block_class,), {"forward": forward, "__module__": block_class.__module__})


class BufferSnapshot:
    """Reusable context manager that temporarily resets the buffers of `module` to their values at its creation.

    Changes made to the buffers inside the context are discarded.
    """

    def __init__(self, module: nn.Module) -> None:
        # For each buffer: the buffers of its module, its name, and its value. Modules in evaluation mode don't change theirs.
        self._before: list[tuple[dict[str, Tensor | None], str, Tensor]] = [
            (buffers_of(submodule), name, buffer.detach().clone())
            for submodule in module.modules()
            if submodule.training
            for name, buffer in buffers_of(submodule).items()
            if buffer is not None
        ]
        self._current: list[Tensor | None] = []

    def __enter__(self) -> None:
        self._current = [buffers[name] for buffers, name, _ in self._before]
        for buffers, name, before in self._before:
            buffers[name] = before.clone()

    def __exit__(self, *error: object) -> None:
        for (buffers, name, _), current in zip(self._before, self._current, strict=True):
            buffers[name] = current
        self._current = []
