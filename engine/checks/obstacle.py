"""What keeps a training off some of a machine's GPUs, and how those are named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.contract.devices import Gpu, Snapshot, gpu_title
from engine.system.format import listed


class Obstacle(NamedTuple):
    """Why `gpus` cannot be trained on, and what to do about it."""

    gpus: tuple[Gpu, ...]
    message: str
    remedy: str


def titles(gpus: Iterable[Gpu], word: str = "and") -> str:
    """ "GPU 0, GPU 1 and GPU 2", with `word` before the last."""
    return listed(dict.fromkeys(map(gpu_title, gpus)), word)


def whole(gpu: Gpu, machine: Snapshot) -> Gpu:
    """The GPU that a MIG instance is part of; any other GPU is whole itself."""
    parent = gpu.mig.parent_uuid if gpu.mig is not None else gpu.uuid
    return next((other for other in machine.gpus if other.uuid == parent), gpu)
