"""Buffers for the activations that a relay receives, tested in a single process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from engine.strategies.pipelining.relay import Relay


def test_relay_receives_in_the_type_of_the_previous_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[int, object]] = []

    def receive(objects: list[Any], source: int, group: object) -> None:
        requests.append((source, group))
        objects[0] = torch.Size((2, 3)), torch.bfloat16

    monkeypatch.setattr(dist, "recv_object_list", receive)
    relay = Relay({1: nn.Identity()}, (4, 7), torch.device("meta"), "group", "control")  # type: ignore[arg-type]
    for _ in range(2):
        buffer = relay._receive_buffer(1)
        assert (buffer.shape, buffer.dtype, buffer.device.type) == ((2, 3), torch.bfloat16, "meta")
    assert requests == [(4, "control")], "the shape is received once"
