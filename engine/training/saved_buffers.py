"""Copies of a model's buffers, for undoing the changes of a step."""

from __future__ import annotations

import operator

import torch
from torch import Tensor, nn

from engine.torch_compat import buffers_of, copy_all


class SavedBuffers:
    """Copies of the buffers of all modules of `model` that were in training mode when this object was created.

    A forward pass changes such buffers (BatchNorm's statistics), even if its gradients are dropped. `save` runs before
    every step, so it copies all buffers of the same type and device together.
    """

    def __init__(self, model: nn.Module) -> None:
        # For each buffer: the buffers of its module, and its name.
        self._owners = [
            (buffers_of(module), name) for module in model.modules() if module.training for name in buffers_of(module)
        ]
        self._originals: list[Tensor | None] = []  # buffers at the last `save`
        self._copies: list[Tensor | None] = []
        # Copies and originals, in a pair of lists for each device and data type.
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []

    @torch.no_grad()
    def save(self) -> None:
        """Copy the current values of the model's buffers."""
        current = [buffers[name] for buffers, name in self._owners]
        if not self._are_unchanged(current):
            self._copy_and_group(current)
            return
        for copies, buffers in self._groups:
            copy_all(copies, buffers)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the buffer tensors of the last `save` back into the modules, with the values that they had then."""
        for (buffers, name), current, copy in zip(self._owners, self._originals, self._copies, strict=True):
            if current is not None and copy is not None:
                current.copy_(copy)
            buffers[name] = current

    def _are_unchanged(self, current: list[Tensor | None]) -> bool:
        """Return True if the `current` buffers are the same tensor objects as at the last `save`.

        A model may have replaced them since then.
        """
        return len(current) == len(self._originals) and all(map(operator.is_, current, self._originals))

    def _copy_and_group(self, current: list[Tensor | None]) -> None:
        """Copy the buffers, and group them by device and data type for faster copies later."""
        self._originals = current
        self._copies = [None if buffer is None else buffer.detach().clone() for buffer in current]
        groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
        for copy, buffer in zip(self._copies, current, strict=True):
            if buffer is not None and copy is not None:
                copies, buffers = groups.setdefault((buffer.device, buffer.dtype), ([], []))
                copies.append(copy)
                buffers.append(buffer)
        self._groups = list(groups.values())
