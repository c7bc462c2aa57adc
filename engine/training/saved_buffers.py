"""A model's buffers as they were before a step, to be put back where the step does not count."""

from __future__ import annotations

import operator
from collections import defaultdict

import torch
from torch import Tensor, nn

from engine.torch_compat import buffers_of, copy_all


class SavedBuffers:
    """The buffers of those parts of `model` that are in training mode when this is made, as BatchNorm's statistics: a
    forward pass moves them, whatever becomes of its gradients.

    `save` copies them into memory of their own, all of one type and device at once, since it is done before every step.
    """

    def __init__(self, model: nn.Module) -> None:
        self._owners = [
            (buffers_of(part), name) for part in model.modules() if part.training for name in buffers_of(part)
        ]
        self._own: list[Tensor | None] = []
        self._copies: list[Tensor | None] = []
        self._alike: list[tuple[list[Tensor], list[Tensor]]] = []

    @torch.no_grad()
    def save(self) -> None:
        own = [buffers[name] for buffers, name in self._owners]
        if not self._is_known(own):
            self._learn(own)
            return
        for copies, buffers in self._alike:
            copy_all(copies, buffers)

    @torch.no_grad()
    def restore(self) -> None:
        for (buffers, name), own, copy in zip(self._owners, self._own, self._copies, strict=True):
            if own is not None and copy is not None:
                own.copy_(copy)
            buffers[name] = own

    def _is_known(self, own: list[Tensor | None]) -> bool:
        """Whether they are the tensors of the last time: a model may also put others in their place."""
        return len(own) == len(self._own) and all(map(operator.is_, own, self._own))

    def _learn(self, own: list[Tensor | None]) -> None:
        self._own, self._copies = own, [None if buffer is None else buffer.detach().clone() for buffer in own]
        alike: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
        for copy, buffer in zip(self._copies, own, strict=True):
            if buffer is not None and copy is not None:
                copies, buffers = alike[buffer.device, buffer.dtype]
                copies.append(copy)
                buffers.append(buffer)
        self._alike = list(alike.values())
