"""The random numbers of one rank: the generators that a model may draw from, and where each of them stands."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed(number: int) -> None:
    """Begins the streams of Python, numpy and torch, that of the CPU and those of all GPUs, at `number`, of 64 bits.

    Numpy's and the CPU's go by its lower 32 bits.
    """
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.manual_seed(number)


def random_state(device: torch.device) -> dict[str, Any]:
    """Where this process's streams stand, as plain values and tensors on the CPU; those of GPUs where `device` is
    one.
    """
    numpy: Any = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": (numpy["state"]["key"].tolist(), numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if device.type == "cuda" else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Goes on from what `random_state` gave, on as many GPUs or none."""
    random.setstate(state["python"])
    key, *rest = state["numpy"]
    np.random.set_state(("MT19937", np.array(key, np.uint32), *rest))
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[None]:
    """What is drawn inside leaves the streams as they were."""
    state = random_state(device)
    try:
        yield
    finally:
        set_random_state(state)


class SavedStreams:
    """Where the streams stood when `save` was last called; to be kept before every step, it takes a few microseconds.

    Python's and numpy's take ten times as long, and are kept only where the model is `untrusted_model`: torchvision's
    models draw from torch alone.
    """

    def __init__(self, device: torch.device, *, untrusted_model: bool) -> None:
        self._on_gpu = device.type == "cuda"
        self._untrusted_model = untrusted_model

    def save(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if self._on_gpu else []
        self._others = (random.getstate(), np.random.get_state()) if self._untrusted_model else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._others is not None:
            python, numpy = self._others
            random.setstate(python)
            np.random.set_state(numpy)
