"""Sharded parameters, divided layers, and buckets of tensors, in a process group of one rank."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
import torchvision
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.optim.shards import PACKED_FOR, gather_shards, get_local_shard, pack_qkv
from engine.strategies import STRATEGIES, gradients, rank_times, sharding
from engine.strategies.base import ResolvedJob, StepResult
from engine.strategies.collectives import Collectives
from engine.strategies.gradients import match_strides
from engine.strategies.layer_split import find_layer_pairs, shard_layer_pairs
from engine.strategies.rank_times import HostTimer
from engine.strategies.sharding import UsedParameters, find_tied_views, separate_blocks, time_collectives
from engine.torch_compat import reduce_unused_parameters
from tests.support.process_groups import use_fake_group
from tests.support.specs import make_worker_spec


class PartlyUsedModel(nn.Module):
    """Model with three layers: the first is always used, the second on request, and the third never."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.optional, self.never = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor, uses_optional: bool) -> Tensor:
        y: Tensor = self.always(x)
        return self.optional(y) if uses_optional else y


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_sharded_layers_move_only_if_used(mesh: DeviceMesh) -> None:
    model = PartlyUsedModel()
    group = fully_shard(model, mesh=mesh)
    reduce_unused_parameters(group)
    used = UsedParameters(model, [group], Collectives())

    def train_and_list_modules(uses_optional: bool) -> set[str]:
        model.zero_grad()
        model(torch.ones(2, 4), uses_optional).sum().backward()
        joined = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert "never.weight" in joined, "ranks join what one of them may have used"
        used.drop_unused()
        return {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}

    assert train_and_list_modules(uses_optional=True) == {"always", "optional"}
    assert train_and_list_modules(uses_optional=False) == {"always"}
    assert train_and_list_modules(uses_optional=True) == {"always", "optional"}


def test_tied_views_overlap() -> None:
    flat, model = torch.zeros(12), nn.Module()
    for name, tensor in {"first": flat[:4], "second": flat[4:8], "third": flat[7:], "other": torch.zeros(4)}.items():
        model.register_parameter(name, nn.Parameter(tensor))
    assert find_tied_views(model) == ("second", "third")


def test_blocks_with_shared_parameters_are_not_separate() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(3)))
    model[2][0].weight = model[0][0].weight
    assert separate_blocks(model) == [model[1]]


def test_gradients_get_the_strides_of_their_parameters() -> None:
    parameter = nn.Parameter(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
    parameter.grad = torch.arange(120.0).view(2, 3, 5, 4).transpose(2, 3)
    before = parameter.grad.clone()
    match_strides([parameter, nn.Parameter(torch.zeros(1))])
    assert parameter.grad.stride() == parameter.stride()
    assert torch.equal(parameter.grad, before)


def test_collectives_run_on_buckets_of_one_type(mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    broadcast = dist.broadcast

    def increment_and_broadcast(flat: Tensor, source: int, **options: Any) -> Any:
        sizes.append(flat.nbytes)
        return broadcast(flat.add_(1), source, **options)

    monkeypatch.setattr(dist, "broadcast", increment_and_broadcast)
    monkeypatch.setattr(gradients, "BUCKET_BYTES", 16)
    tensors = [
        torch.arange(2.0),
        torch.zeros(1, 2),
        torch.zeros(1),
        torch.zeros(1),
        torch.zeros(1).double(),
        torch.zeros(2, 3).double(),
    ]
    expected = [tensor + 1 for tensor in tensors]
    gradients.broadcast(tensors, 0, None)
    assert sizes == [16, 8, 8, 48]
    assert all(map(torch.equal, tensors, expected))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # about names of torch's collectives
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_collectives_of_shards_are_timed(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """Count the collectives by a clock that advances by one second at each reading."""
    seconds = itertools.count()
    for module in (sharding, rank_times):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    with use_fake_group(rank=0, world_size=4):
        model = nn.Linear(4, 4)
        names = ("replicate", "shard")[-len(shape) :]
        group, timer = fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names)), HostTimer()
        time_collectives(group, timer, all_reduce=len(shape) > 1)
        timer.start()
        model(torch.ones(2, 4)).sum().backward()
        assert timer.stop().blocked_s == (1.0,) * (1 + len(shape))


def test_gradients_are_reduced_with_the_last_part_of_a_batch() -> None:
    job = Job.from_fields(strategy="ddp", devices=("cpu", "cpu"), accumulation=3)
    strategy: Any = STRATEGIES["ddp"](make_worker_spec(job))
    strategy.resolved_job, strategy.accumulation = ResolvedJob(job), 3
    strategy.loss_divisor = lambda _batch: 6
    is_reducing, reduced = [True], []

    @contextmanager
    def no_sync() -> Iterator[None]:
        is_reducing.append(False)
        yield
        is_reducing.pop()

    def forward_backward(chunk: Batch, _optimizer_step: object) -> StepResult:
        reduced.append((len(chunk.targets), is_reducing[-1]))
        return StepResult(None, None, None)

    strategy.forward, strategy.forward_backward = SimpleNamespace(no_sync=no_sync), forward_backward
    strategy.step(Batch(torch.zeros(6, 3), torch.zeros(6), global_size=6, wait_s=0.0), Mock())
    assert reduced == [(2, False), (2, False), (2, True)]


def test_sum_over_batch_counts_each_tensor_parallel_group_once(mesh: DeviceMesh) -> None:
    spec = make_worker_spec(Job.from_fields(strategy="ddp_tp", devices=("cpu",) * 4, replicas=2))
    assert STRATEGIES["ddp_tp"](spec).sum_over_batch(torch.tensor(6.0)) == 3.0


def test_sum_over_shards_stays_within_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_worker_spec(Job.from_fields(strategy="hsdp", devices=("cpu",) * 6, replicas=3))
    strategy: Any = STRATEGIES["hsdp"](spec)
    groups: list[Any] = []
    monkeypatch.setattr(dist, "all_reduce", lambda _total, group=None: groups.append(group))
    with use_fake_group(rank=0, world_size=6):
        strategy.mesh_of_ranks = init_device_mesh("cpu", (3, 2), mesh_dim_names=("replicate", "shard"))
        strategy.sum_over_shards(torch.tensor(1.0))
        assert [dist.get_process_group_ranks(group) for group in groups] == [[0, 1]]


def test_gathered_attention_rows_are_in_their_order(mesh: DeviceMesh) -> None:
    rows = torch.arange(12.0)
    like = distribute_tensor(pack_qkv(rows, 2), mesh, [Shard(0)])
    setattr(like, PACKED_FOR, 2)
    assert torch.equal(gather_shards(get_local_shard(like), like), rows)  # type: ignore[arg-type]


def test_divided_attention_computes_the_same(mesh: DeviceMesh) -> None:
    torch.manual_seed(0)
    plain = torchvision.models.VisionTransformer(32, 16, 1, 2, hidden_dim=16, mlp_dim=32, num_classes=3)
    nn.init.normal_(plain.heads.head.weight)
    divided = copy.deepcopy(plain)
    pairs = find_layer_pairs(divided)
    assert [(pair.units, pair.attention is not None) for pair in pairs] == [(2, True), (32, False)]
    shard_layer_pairs(pairs, mesh, source=0)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(divided(images), plain(images))
