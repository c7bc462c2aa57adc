"""Behavior of the CUDA stub itself."""

from __future__ import annotations

import pytest

from tests.cuda import scenarios
from tests.support.cuda_state import MIB
from tests.support.waiting import wait_until

from .conftest import Call, Machine


@pytest.mark.long
def test_machine_has_ordered_gpus_with_limited_memory(machine: Machine, call: Call) -> None:
    host = machine(3, memory_mib=1024, context_mib=100)
    visible = (host.uuids[2], host.uuids[0])
    found = call(host, scenarios.describe_machine, CUDA_VISIBLE_DEVICES=",".join(visible))
    assert found == {
        "uuids": list(visible),
        "total": 1024 * MIB,
        "free": 924 * MIB,
        "beyond": "OutOfMemoryError",
        "free_then": 860 * MIB,
    }
    assert [note.gpu for note in host.read_events("context")] == [0]
    wait_until(lambda: not any(map(host.state.read_allocated_bytes, range(3))), "the process gives the memory back")


@pytest.mark.long
def test_copies_are_asynchronous_and_forks_cannot_use_cuda(machine: Machine, call: Call) -> None:
    host = machine(copy_ms=50, exact=True)
    assert call(host, scenarios.copy_from_gpu) == [[0, 0, 0, 0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert "re-initialize CUDA in forked" in call(host, scenarios.use_cuda_in_fork)
