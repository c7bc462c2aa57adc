"""Detection of the parameters that a sharded model uses, in a process group of one rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from engine.strategies.collectives import Collectives
from engine.strategies.sharding import UsedParameters
from engine.torch_compat import reduce_unused_parameters


class Some(nn.Module):
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
    model = Some()
    group = fully_shard(model, mesh=mesh)
    reduce_unused_parameters(group)
    used = UsedParameters(model, [group], Collectives())

    def trained(uses_optional: bool) -> set[str]:
        model.zero_grad()
        model(torch.ones(2, 4), uses_optional).sum().backward()
        joined = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
        assert "never.weight" in joined, "ranks join what one of them may have used"
        used.drop_unused()
        return {name.partition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}

    assert trained(uses_optional=True) == {"always", "optional"}
    assert trained(uses_optional=False) == {"always"}
    assert trained(uses_optional=True) == {"always", "optional"}
