"""The stand-in for CUDA: what is real of it."""

from __future__ import annotations

import pytest

from tests.cuda import scenarios
from tests.support.cuda_state import MIB

from .conftest import Machine


@pytest.mark.long
def test_that_a_machine_has_its_gpus_in_the_order_asked_for_and_their_memory_ends(machine: Machine) -> None:
    host = machine(3, memory_mib=1024, context_mib=100)
    visible = (host.uuids[2], host.uuids[0])
    seen = host.call(scenarios.machine_as_seen, CUDA_VISIBLE_DEVICES=",".join(visible))
    assert seen == {
        "uuids": list(visible),
        "total": 1024 * MIB,
        "free": 924 * MIB,
        "beyond": "OutOfMemoryError",
        "free_then": 860 * MIB,
    }
    assert [note.gpu for note in host.notes("context")] == [0]
    assert not any(map(host.state.held, range(3)))  # it has ended


@pytest.mark.long
def test_that_copies_come_when_they_are_done_and_a_fork_cannot_use_cuda(machine: Machine) -> None:
    host = machine(copy_ms=50, exact=True)
    assert host.call(scenarios.copied_and_awaited) == [[0, 0, 0, 0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert "re-initialize CUDA in forked" in host.call(scenarios.used_in_a_fork)
