"""Test transfers that check the links between GPUs."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from engine.contract.job import Job
from engine.strategies import link_check
from engine.strategies.base import StrategyError
from engine.strategies.collectives import Collectives
from engine.strategies.link_check import check_links, explain_failure, pair_ranks
from tests.support.process_groups import use_fake_group
from tests.support.specs import make_worker_spec


@pytest.mark.parametrize("world_size", [2, 3, 4, 7, 8, 16])
def test_rounds_pair_every_two_ranks_once(world_size: int) -> None:
    pairs = [pair for each in pair_ranks(world_size) for pair in each]
    assert sorted(pairs) == list(combinations(range(world_size), 2))
    for each in pair_ranks(world_size):
        ranks = [rank for pair in each for rank in pair]
        assert len(ranks) == len(set(ranks))


@pytest.mark.parametrize(
    ("devices", "shared_memory", "is_peer", "remedy"),
    [
        (("GPU-a", "GPU-b"), 64 << 20, True, "--shm-size"),
        (("GPU-a", "GPU-b"), 8 << 30, True, "NCCL_P2P_DISABLE=1"),
        (("GPU-a", "GPU-b"), 8 << 30, False, "nvidia-fabricmanager"),
        (("GPU-a", "other:GPU-b"), 64 << 20, True, "firewall"),
        (("one:GPU-a", "one:GPU-b"), 8 << 30, True, "NCCL_P2P_DISABLE=1"),
    ],
)
def test_failed_exchange_names_gpus_and_remedy(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, str], shared_memory: int, is_peer: bool, remedy: str
) -> None:
    usage = type("Usage", (), {"total": shared_memory})
    monkeypatch.setattr(link_check.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(link_check, "_SHARED_MEMORY", Path("/"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *_: is_peer)
    job = Job.from_fields(devices=devices, strategy="ddp")
    spec = make_worker_spec(job, world_size=2, devices=devices)
    text = explain_failure(spec, 0, 1, "nothing has arrived")
    assert remedy in text
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    expected = "fabricmanager" if remedy.startswith("NCCL") else remedy
    assert expected in explain_failure(spec, 0, 1, "nothing has arrived")
    assert all(device in text for device in devices)


def test_failure_of_a_pair_on_another_machine_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the error on the second machine's rank if the two GPUs of the first machine can't exchange data."""
    devices = ("one:GPU-a", "one:GPU-b", "two:GPU-c")
    spec = make_worker_spec(Job.from_fields(devices=devices, strategy="ddp"), rank=2, devices=devices)

    class FailedPair(Collectives):
        def all_gather_objects(self, value: Any) -> list[Any]:
            return ["GPU 0 and GPU 1 can't exchange data", "GPU 0 and GPU 1 can't exchange data", value]

    monkeypatch.setattr(link_check, "pair_ranks", lambda _: [[(0, 1)]])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(StrategyError, match="GPU 0 and GPU 1 can't exchange data"):
            check_links(spec, torch.device("cpu"), FailedPair())
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("failure", "error", "text"),
    [
        ("", None, ""),
        ("slow", StrategyError, "nothing has arrived within 0 s"),
        ("changed", StrategyError, "data has arrived changed"),
        ("broken", RuntimeError, "^NCCL is broken$"),
    ],
)
def test_exchange_is_an_error_unless_data_arrives(
    monkeypatch: pytest.MonkeyPatch, failure: str, error: type[Exception] | None, text: str
) -> None:
    """Check rank 1, whose transfers complete, never complete, complete without data, or fail."""
    devices = ("GPU-a", "GPU-b")
    spec = make_worker_spec(Job.from_fields(devices=devices, strategy="ddp"), rank=1, devices=devices)

    class OtherRankSawNothing(Collectives):
        def all_gather_objects(self, value: Any) -> list[Any]:
            return ["", value]

    def complete_or_fail(transfers: list[dist.P2POp]) -> list[dist.Work]:
        if failure == "broken":
            raise RuntimeError("NCCL is broken")
        sent, received = (transfer.tensor for transfer in transfers)
        assert (sent == 1).all(), "a rank sends its number"
        if not failure:
            received.zero_()
        return []

    monkeypatch.setattr(link_check, "TIMEOUT_S", 0.0)
    if failure != "slow":
        monkeypatch.setattr(dist, "batch_isend_irecv", complete_or_fail)
    if error is StrategyError:
        text = rf"GPU 0 \(GPU-a\) and GPU 1 \(GPU-b\) of the run can't exchange data: {text}"
    expectation = pytest.raises(error, match=text) if error is not None else nullcontext()
    with use_fake_group(rank=1, world_size=2), expectation:
        check_links(spec, torch.device("cpu"), OtherRankSawNothing())
