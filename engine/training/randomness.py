"""States of the random number generators that a model may use."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed(number: int) -> None:
    """Seed the generators of Python, numpy and torch (on CPU and GPUs) with a 64-bit `number`.

    numpy and torch's CPU generator use only the lower 32 bits of it.
    """
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.manual_seed(number)


def get_random_state(gpus: Sequence[torch.device]) -> dict[str, Any]:
    """Return the states of this process's generators and of those on its `gpus`, as plain values and CPU tensors."""
    numpy: Any = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": (numpy["state"]["key"].tolist(), numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]),
        "cpu": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(gpu) for gpu in gpus],
    }


def set_random_state(state: dict[str, Any], gpus: Sequence[torch.device]) -> None:
    """Restore the states that `get_random_state` returned, even if the number of GPUs has changed since then."""
    random.setstate(state["python"])
    key, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", np.array(key, np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["cpu"])
    for gpu, gpu_state in zip(gpus, state["cuda"], strict=False):  # additional GPUs keep their states
        torch.cuda.set_rng_state(gpu_state, gpu)


@contextmanager
def preserve_rng(gpus: Sequence[torch.device]) -> Iterator[None]:
    """Context manager that restores the states of this process's generators and of those on its `gpus` when it ends."""
    state = get_random_state(gpus)
    try:
        yield
    finally:
        set_random_state(state, gpus)


class SavedStreams:
    """States of the random number generators at the last `save`.

    `save` runs before every step, so it must take only a few microseconds. Saving the states of Python and numpy takes
    ten times as long, and is done only for an `untrusted_model`, which comes from a user's file. The models of
    torchvision draw only from torch.
    """

    def __init__(self, gpus: Sequence[torch.device], *, untrusted_model: bool) -> None:
        self._gpus = gpus
        self._untrusted_model = untrusted_model

    def save(self) -> None:
        """Copy the current states of the generators."""
        self._cpu = torch.get_rng_state()
        self._cuda = [torch.cuda.get_rng_state(gpu) for gpu in self._gpus]
        self._others = (random.getstate(), np.random.get_state()) if self._untrusted_model else None

    def restore(self) -> None:
        """Set the random number generators to their states at the last `save`."""
        torch.set_rng_state(self._cpu)
        for gpu, state in zip(self._gpus, self._cuda, strict=True):
            torch.cuda.set_rng_state(state, gpu)
        if self._others is not None:
            python, numpy = self._others
            random.setstate(python)
            np.random.set_state(numpy)
