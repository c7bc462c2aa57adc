"""Copies of a model's buffers, for undoing the changes of a step."""

from __future__ import annotations

import operator
from collections import defaultdict

import torch
from torch import Tensor, nn

from engine.torch_compat import buffers_of, copy_all


class SavedBuffers:
    """Copies of the buffers of all modules of `model` that were in training mode when this object was created.

    A forward pass changes such buffers (BatchNorm's statistics), even if its gradients are dropped. `save` runs before
    every step, so it copies all buffers of the same type and device together.
    """

    def __init__(self, model: nn.Module) -> None:
        self._owners = [
            (buffers_of(module), name) for module in model.modules() if module.training for name in buffers_of(module)
        ]
        self._originals: list[Tensor | None] = []  # buffers at the last `save`
        self._copies: list[Tensor | None] = []
        # Copies and originals, in a pair of lists for each device and data type.
        self._alike: list[tuple[list[Tensor], list[Tensor]]] = []

    @torch.no_grad()
    def save(self) -> None:
        current = [buffers[name] for buffers, name in self._owners]
        if not self._is_known(current):
            self._learn(current)
            return
        for copies, buffers in self._alike:
            copy_all(copies, buffers)

    @torch.no_grad()
    def restore(self) -> None:
        for (buffers, name), current, copy in zip(self._owners, self._originals, self._copies, strict=True):
            if current is not None and copy is not None:
                current.copy_(copy)
            buffers[name] = current

    def _is_known(self, current: list[Tensor | None]) -> bool:
        """Return True if the `current` buffers are the same tensor objects as before.

        A model may have replaced them.
        """
        return len(current) == len(self._originals) and all(map(operator.is_, current, self._originals))

    def _learn(self, current: list[Tensor | None]) -> None:
        """Copy the buffers, and group them by device and data type for faster copies later."""
        self._originals, self._copies = (
            current,
            [None if buffer is None else buffer.detach().clone() for buffer in current],
        )
        alike: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for copy, buffer in zip(self._copies, current, strict=True):
            if buffer is not None and copy is not None:
                copies, buffers = alike[buffer.device, buffer.dtype]
                copies.append(copy)
                buffers.append(buffer)
        self._alike = list(alike.values())
