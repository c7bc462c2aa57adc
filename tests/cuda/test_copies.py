"""Copies to and from simulated GPUs. They are delayed to reveal missing synchronization."""

from __future__ import annotations

import pytest

from tests.cuda import scenarios
from tests.support.cases import mark_long_cases

from .conftest import Call, Machine


def test_slot_is_reused_after_its_batch_was_read(machine: Machine, call: Call) -> None:
    """Use copies that take longer than filling a buffer, and kernels that take longer than copies."""
    host = machine(2, copy_ms=5, kernel_ms=15, exact=True)
    assert call(host, scenarios.send_batches) == [
        [[1, number], [2, 10 * number + 3], [2, number + 0.5], [2, number]] for number in range(1, 7)
    ]
    assert {note.gpu for note in host.read_events()} == {1}


def test_samples_are_not_overwritten_before_they_are_read(machine: Machine, call: Call) -> None:
    assert call(machine(copy_ms=5, kernel_ms=15, exact=True), scenarios.load_samples) == [
        [[number, number + 1]] * 2 for number in range(0, 16, 2)
    ]


@pytest.mark.long
@pytest.mark.parametrize("optimizer", mark_long_cases(["sgd", "adam", "adamw"], ["adamw"]))
def test_overflow_keeps_offloaded_shards(machine: Machine, call: Call, optimizer: str) -> None:
    host = machine(copy_ms=50, exact=True)
    assert call(host, scenarios.step_offloaded_shards, optimizer) == [1.0] * 4


def test_snapshot_takes_little_more_pinned_memory_than_its_state(machine: Machine, call: Call) -> None:
    found = call(machine(), scenarios.copy_state_to_pinned_memory)
    assert found["equal"]
    assert found["strides"]
    assert found["step"] == 3
    assert found["pinned"] < 2 * 1.1 * found["state"]
    assert found["saved"] < 1.01 * found["state"]
