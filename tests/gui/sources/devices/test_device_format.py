"""Descriptions of GPU states."""

from __future__ import annotations

import pytest

from engine.contract.devices import Ecc, Gpu, Retired, Xid
from gui.sources.devices.device_format import State, join_states, states
from tests.gui.monitor.watching import START, full_gpu, plain_gpu


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        (plain_gpu(), ""),
        (plain_gpu(throttled=()), ""),
        (plain_gpu(throttled=("power_cap",)), "Limited by the power limit"),
        (plain_gpu(throttled=("thermal",)), "⚠ Throttling: hot"),
        (
            plain_gpu(throttled=("power_cap", "hardware_thermal")),
            "⚠ Throttling: too hot · limited by the power limit",
        ),
        (plain_gpu(asleep=True), "Asleep, not woken"),
        (plain_gpu(ecc=Ecc(corrected=2, uncorrected=0)), "2 corrected memory errors"),
        (plain_gpu(ecc=Ecc(uncorrected=1)), "⚠ 1 uncorrected memory error since the driver was loaded"),
        (plain_gpu(retired=Retired(rows_failed=True)), "⚠ Faulty memory could not be remapped"),
        (plain_gpu(retired=Retired(pages_pending=True)), "⚠ Faulty memory will be taken out of use at the next reset"),
        (plain_gpu(retired=Retired(rows_corrected=4, rows_pending=False)), ""),
    ],
)
def test_states_text(gpu: Gpu, text: str) -> None:
    assert join_states(states(gpu, START)) == text


def test_states_include_recent_xid() -> None:
    gpu = full_gpu(throttled=(), xids=(Xid(START - 10, 31), Xid(START - 5, 79)))
    (state,) = states(gpu, START)
    assert state.alarming
    assert state.text.startswith("Xid 79: the GPU has fallen off the bus (")
    assert states(gpu, START + 3601) == ()


def test_states_program_xid_is_not_alarming() -> None:
    (state,) = states(full_gpu(throttled=(), xids=(Xid(START, 31),)), START)
    assert not state.alarming


def test_states_of_lost_gpu() -> None:
    assert states(full_gpu(lost=True), START) == (State("lost", True),)
