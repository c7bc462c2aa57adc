"""Warnings about GPUs that the user selects for a job."""

from __future__ import annotations

import pytest

from engine.contract.problems import Problem
from gui.devices.warnings import collect_warnings
from tests.gui.sources.devices.snapshots import UUIDS, gpu, held_by, snapshot

HOT = Problem("devices", "GPU 1 is hot.", "", "warning")
FULL = {"memory_used_bytes": 140 << 30}
RESERVED = {"memory_used_bytes": 130 << 30, "memory_reserved_bytes": 8 << 30}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        (FULL, "140.0 of 141.0 GiB"),
        (RESERVED, "130.0 of 141.0 GiB"),
        ({"throttled": ("thermal",)}, "throttling: hot"),
        ({"lost": True}, ""),
    ],
)
def test_device_warnings_name_unfit_gpu(changes: dict[str, object], expected: str) -> None:
    (message, *_) = [*collect_warnings({}, snapshot(gpu(0, **changes)), {}, ()).get(UUIDS[0], ()), ""]
    assert expected in str(message)
    assert bool(message) == bool(expected)


def test_device_warnings_ignore_memory_of_a_run() -> None:
    assert collect_warnings({}, snapshot(gpu(0, **FULL)), {UUIDS[0]: "a run"}, ()) == {}


@pytest.mark.parametrize("alerts", [{}, {UUIDS[0]: (Problem("devices", "GPU 1 throttles."), HOT)}])
def test_device_warnings_offer_unused_gpu(alerts: dict[str, tuple[Problem, ...]]) -> None:
    machine = snapshot(gpu(0, **FULL), gpu(1, processes=held_by("anna", 1)), gpu(2, cuda_index=2), gpu(3, lost=True))
    *others, problem = collect_warnings(alerts, machine, {}, (UUIDS[1], UUIDS[0]))[UUIDS[0]]
    assert not any(each.choices for each in others)
    assert problem.message == HOT.message if alerts else "140.0" in problem.message
    (choice,) = problem.choices
    assert choice.title == "Use GPU 2 instead"
    assert choice.values == {"devices": f"{UUIDS[1]},{UUIDS[2]}"}
    assert collect_warnings(alerts, machine, {}, (UUIDS[0], UUIDS[2]))[UUIDS[0]][0].choices == ()
