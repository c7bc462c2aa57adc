"""Process groups of PyTorch inside the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def use_fake_group(rank: int, world_size: int) -> Iterator[None]:
    """Make this process `rank` of a default group, whose other ranks don't exist. Collectives return at once."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()
