"""Comparison of two finished worker groups: losses, metrics, and the contents of their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.events import Validation


def is_statistic(name: str) -> bool:
    """Return True for BatchNorm's buffers, which differ between ranks and microbatches."""
    return "running_" in name or name.endswith("num_batches_tracked")


def assert_same_training(
    group: Any,
    other: Any,
    rtol: float = 0.0,
    *,
    losses_rtol: float | None = None,
    ignore: Callable[[str], bool] | None = None,
) -> None:
    """Check that losses, metrics, weights, optimizer state and averaged weights of two finished `WorkerGroup`s agree.

    Args:
        group: Finished group.
        other: Finished group to compare with.
        rtol: Relative tolerance. If it is 0, the checkpoints must be equal bit by bit.
        losses_rtol: Relative tolerance for losses and metrics, by default `rtol`. It is at least 1e-6, because these
            are sums in another order.
        ignore: Function that returns True for the names of weights to skip. If it is given, metrics are skipped, too.
    """
    summed = {"rel": max(losses_rtol or rtol, 1e-6), "abs": 1e-7}  # fp32 resolves 1.2e-7
    assert len(group.losses) > 0
    np.testing.assert_allclose(group.losses, other.losses, rtol=summed["rel"], atol=summed["abs"])
    if ignore is None:
        for one, another in zip(group.of(Validation), other.of(Validation), strict=True):
            assert one.images == another.images
            assert one.measures == pytest.approx(another.measures, **summed)
    actual, expected = group.checkpoint(), other.checkpoint()
    assert list(actual["model"]) == list(expected["model"])
    for mine, theirs in (
        (actual["model"], expected["model"]),
        (actual["optimizer"]["ema"], expected["optimizer"]["ema"]),
        (actual["optimizer"]["state"], expected["optimizer"]["state"]),
    ):
        assert mine.keys() == theirs.keys()
        for name in mine:
            if ignore is None or not ignore(name):
                torch.testing.assert_close(
                    mine[name], theirs[name], rtol=rtol, atol=rtol / 100, msg=lambda text, n=name: f"{n}: {text}"
                )
