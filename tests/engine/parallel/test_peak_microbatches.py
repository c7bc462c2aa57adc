"""Maximum number of microbatches in flight per stage, compared with the order in torch's schedules."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn
from torch.distributed.pipelining import ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble

from engine.parallel.layout import stage_ranks, supports_microbatches
from engine.parallel.peak_microbatches import find_peaks_in_flight

_TORCHS = {
    "interleaved_1f1b": ScheduleInterleaved1F1B,
    "zb1p": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}


def _peaks(schedule: str, microbatches: int, devices: int, places: tuple[int, ...]) -> tuple[int, ...]:
    """Return the maximum number of microbatches in flight for each stage of the first device.

    They are counted in the order of torch's forward and backward passes. `places` is the device of each stage.
    """
    # Before its first step a schedule reads only these attributes of a rank's stages.
    stages: list[Any] = [
        SimpleNamespace(
            group_size=devices, group_rank=0, num_stages=len(places), stage_index=stage, is_last=False,
            submod=nn.Identity(),
        )
        for stage, place in enumerate(places)
        if place == 0
    ]  # fmt: skip
    order = _TORCHS[schedule](stages, microbatches).pipeline_order
    in_flight: Counter[int] = Counter()
    peaks: Counter[int] = Counter()
    for actions in order.values():
        for action in filter(None, actions):
            kind = action.computation_type.value
            if kind == "F":
                in_flight[action.stage_index] += 1
            elif kind in ("B", "W"):
                in_flight[action.stage_index] -= 1
            peaks[action.stage_index] = max(peaks[action.stage_index], in_flight[action.stage_index])
    assert not any(in_flight.values())
    return tuple(peaks[stage] for stage in range(len(places)))


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", list(_TORCHS))
def test_in_flight_matches_torch_schedules(schedule: str, devices: int) -> None:
    tried = 0
    for per_device in (2, 3) if schedule == "interleaved_1f1b" else (None,):
        places = stage_ranks(schedule, devices, per_device)
        for microbatches in filter(lambda count: supports_microbatches(schedule, count, devices), range(1, 18)):
            expected = _peaks(schedule, microbatches, devices, places)
            assert find_peaks_in_flight(schedule, microbatches, places) == expected, microbatches
            tried += 1
    assert tried > 5


def test_in_flight_of_gpipe_and_1f1b() -> None:
    assert find_peaks_in_flight("gpipe", 8, (0, 1, 2)) == (8, 8, 8)
    assert find_peaks_in_flight("1f1b", 8, (0, 1, 2)) == (3, 2, 1)
    assert find_peaks_in_flight("1f1b", 2, (0, 1, 2)) == (2, 2, 1)
