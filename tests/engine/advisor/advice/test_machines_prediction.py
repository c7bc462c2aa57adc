"""Predicted step times on several machines."""

from __future__ import annotations

import re

import pytest

from engine.advisor.advice.machines import (
    FIRST_BUCKET_BYTES,
    PAYLOAD,
    Step,
    all_reduce_s,
    last_bucket_bytes,
    predict,
    step_s,
)
from engine.contract.advice import Network

STEP = Step(seconds=0.4, fixed_s=0.0, sent_bytes=100_000_000, last_bytes=25 << 20)


def test_ring_all_reduce() -> None:
    network = Network(bits_per_second=8e9 / PAYLOAD, latency_s=0.001)
    assert all_reduce_s(1_000_000_000, 1, network) == 0
    assert all_reduce_s(1_000_000_000, 2, network) == pytest.approx(1.0 + 2 * 0.001)
    assert all_reduce_s(1_000_000_000, 4, network) == pytest.approx(1.5 + 6 * 0.001)


def test_efficiency_depends_on_network() -> None:
    assert step_s(STEP, 4, Network(1e15, 0.0)) == pytest.approx(0.1, rel=1e-3)
    slow, fast = (predict(STEP, 64, 4, Network(rate), total_s=400, steps=1000) for rate in (1e9, 1e11))
    assert slow.efficiency < 0.1
    assert 0.9 < fast.efficiency <= 1
    assert fast.images_per_second == pytest.approx(64 / 0.1, rel=0.1)
    assert fast.total_s == pytest.approx(100, rel=0.1)
    assert slow.sent_bytes == 100_000_000
    assert slow.sending_s == pytest.approx(6 * 0.2 / PAYLOAD, rel=1e-2)
    assert slow.total_s == pytest.approx(400 + 1000 * (64 / slow.images_per_second - 0.4))
    numbers = re.findall(r"[\d.,]*\d", slow.sentence)
    assert numbers[:3] == ["4", f"{slow.images_per_second:.0f}", f"{4 * slow.efficiency:.2f}"]
    assert numbers[-2:] == [f"{1000 * slow.sending_s:,.1f}", "1"]


def test_fixed_time_is_not_divided() -> None:
    assert step_s(Step(0.4, 0.2, 0, 0), 2, Network(1e15, 0.0)) == pytest.approx(0.3)


def test_backward_pass_hides_all_but_last_bucket() -> None:
    network = Network(bits_per_second=8e8 / PAYLOAD, latency_s=0.0)  # 100 MB take two machines a second
    hidden, bare = (step_s(Step(3.0, 0.0, 100_000_000, last), 2, network) for last in (0, 100_000_000))
    assert (hidden, bare) == (pytest.approx(1.5), pytest.approx(2.5))
    short = Step(3.0, 0.0, 100_000_000, 0, backward_share=0.5)
    assert step_s(short, 2, network) == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("gradients", "last"),
    [
        ((), 0),
        ((5_000_000, 70_000, 1_000), 71_000),  # a wide head closes the first bucket by itself
        ((1_000, FIRST_BUCKET_BYTES), FIRST_BUCKET_BYTES + 1_000),
        ((FIRST_BUCKET_BYTES, 20 << 20, 20 << 20, 3 << 20), 3 << 20),
        ((FIRST_BUCKET_BYTES, 20 << 20, 3 << 20), 23 << 20),
    ],
)
def test_last_bucket(gradients: tuple[int, ...], last: int) -> None:
    assert last_bucket_bytes(gradients) == last
