"""Test of the connections between GPUs before the first step."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from engine.contract.devices import host_of, local_device
from engine.contract.worker import WorkerSpec
from engine.strategies.base import StrategyError
from engine.strategies.collectives import Collectives

TIMEOUT_S = 5.0
"""Timeout for one exchange between two GPUs."""
EXCHANGED_BYTES = 1 << 20
MIN_SHARED_MEMORY_BYTES = 128 << 20
"""Minimum size of /dev/shm for communication between several GPUs. Docker's default is half of it."""
_SHARED_MEMORY = Path("/dev/shm")


def check_links(spec: WorkerSpec, device: torch.device, collectives: Collectives) -> None:
    """Exchange data between each pair of ranks to test their connection.

    All ranks call it together, after the process group has been initialized. If an exchange fails, all ranks raise
    StrategyError, which names the two GPUs, a likely cause and the remedy. A rank whose exchange raised an error of
    NCCL raises that error instead.
    """
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    for pairs in pair_ranks(spec.world_size):
        # The other rank of this rank's pair, or None if this rank is in none of the round's pairs.
        peer = next((first + second - spec.rank for first, second in pairs if spec.rank in (first, second)), None)
        collectives.all_reduce_max((0,))  # a barrier: the clock starts once both are ready
        explanation, error = "", None
        if peer is not None:
            try:
                problem = _exchange(spec.rank, peer, device, group)
            except RuntimeError as caught:
                problem, error = "NCCL failed", caught
            if problem:
                explanation = explain_failure(spec, min(spec.rank, peer), max(spec.rank, peer), problem)
        explanations = collectives.all_gather_objects(explanation)
        if error is not None:
            raise error
        for first, second in pairs:
            if explanations[first] or explanations[second]:
                raise StrategyError(explanations[first] or explanations[second])
    dist.destroy_process_group(group)


def pair_ranks(world_size: int) -> list[list[tuple[int, int]]]:
    """Divide all pairs of ranks into rounds such that each rank is in at most one pair per round."""
    # Circle method for round-robin tournaments: the last rank stays in place while the others rotate. With an odd number
    # of ranks, the last one is a dummy, whose pairs are left out.
    count = world_size + world_size % 2
    round_count = count - 1
    all_rounds = [
        [
            (round_count, start),
            *(((start + step) % round_count, (start - step) % round_count) for step in range(1, count // 2)),
        ]
        for start in range(round_count)
    ]
    return [sorted(tuple(sorted(pair)) for pair in pairs if max(pair) < world_size) for pairs in all_rounds]  # type: ignore[misc]


def _exchange(rank: int, peer: int, device: torch.device, group: dist.ProcessGroup) -> str:
    """Exchange data with rank `peer`. Return a description of the problem, or "" if the exchange succeeded."""
    sent = torch.full((EXCHANGED_BYTES,), rank, dtype=torch.uint8).to(device)
    received = torch.full((EXCHANGED_BYTES,), 255, dtype=torch.uint8).to(device)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, peer, group), dist.P2POp(dist.irecv, received, peer, group)]
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not all(work.is_completed() for work in works):
        if time.monotonic() > deadline:
            return f"nothing has arrived within {TIMEOUT_S:.0f} s"
        time.sleep(0.001)
    return "" if bool((received.cpu() == peer).all()) else "data has arrived changed"


def explain_failure(spec: WorkerSpec, first: int, second: int, problem: str) -> str:
    """Format an error message about two GPUs that can't exchange data, with a likely cause and a remedy.

    `first` and `second` are the ranks of the GPUs, and `problem` describes the failed exchange. This process must be
    one of the two ranks, because the cause is looked for on its machine.
    """
    devices = spec.devices
    pair = f"GPU {first} ({devices[first]}) and GPU {second} ({devices[second]}) of the run"
    return f"{pair} can't exchange data: {problem}. {_find_remedy(spec, [devices[first], devices[second]])}"


def _find_remedy(spec: WorkerSpec, pair: Sequence[str]) -> str:
    """Return the most likely remedy if two GPUs can't exchange data.

    `pair` has the names of both devices in the job. This machine's shared memory and GPUs are examined.
    """
    if host_of(pair[0]) != host_of(pair[1]):
        return (
            "A firewall between the two machines may block some TCP ports: allow all of them. If only one of the machines "
            "has InfiniBand, set NCCL_IB_DISABLE=1 on all of them."
        )
    if _SHARED_MEMORY.exists() and shutil.disk_usage(_SHARED_MEMORY).total < MIN_SHARED_MEMORY_BYTES:
        return "The shared memory /dev/shm is too small for several GPUs. Start the container with --shm-size=8g or --ipc=host."
    first, second = (spec.local_devices.index(local_device(device)) for device in pair)
    are_visible = max(first, second) < torch.cuda.device_count()
    can_copy_directly = are_visible and torch.cuda.can_device_access_peer(first, second)
    if can_copy_directly and os.environ.get("NCCL_P2P_DISABLE") != "1":
        return (
            "Direct copies between GPUs are often broken by the IOMMU or PCIe's ACS. To continue without direct copies, "
            "start Footplate with NCCL_P2P_DISABLE=1 in its environment. To repair them, turn the IOMMU or ACS off in the "
            "BIOS (NVIDIA's NCCL documentation, Troubleshooting)."
        )
    return (
        "On a machine with NVSwitch, start the fabric manager: `sudo systemctl start nvidia-fabricmanager`. Otherwise check "
        "the system log for Xid messages. To continue, start Footplate with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1 in "
        "its environment, or leave out one of the two GPUs."
    )
