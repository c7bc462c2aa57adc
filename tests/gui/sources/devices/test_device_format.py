"""Descriptions of GPU states."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from engine.contract.devices import Ecc, Gpu, GpuProcess, Mig, RetiredMemory, Xid, gpu_title
from gui.sources.devices.device_format import (
    GpuState,
    current_user,
    describe_gpu,
    describe_use,
    describe_use_briefly,
    gpu_sort_key,
    join_states,
    states,
)
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
        (plain_gpu(retired=RetiredMemory(rows_failed=True)), "⚠ Faulty memory could not be remapped"),
        (
            plain_gpu(retired=RetiredMemory(pages_pending=True)),
            "⚠ Faulty memory will be taken out of use at the next reset",
        ),
        (plain_gpu(retired=RetiredMemory(rows_corrected=4, rows_pending=False)), ""),
    ],
)
def test_states_text(gpu: Gpu, text: str) -> None:
    assert join_states(states(gpu, START)) == text


def test_description_has_all_known_values() -> None:
    fields = {"utilization_percent": 0.0, "temperature_c": 0.0, "power_w": 0.0, "processes": None}
    gpu = full_gpu(memory_used_bytes=0, memory_total_bytes=8 << 30, **fields)
    complete = describe_gpu(gpu).partition(": ")[2].split(", ")
    assert [re.findall(r"[\d.]+", value) for value in complete] == [["0"], ["0.0", "8.0"], ["0"], ["0"]]
    for name in ("utilization_percent", "memory_used_bytes", "temperature_c", "power_w"):
        without = describe_gpu(msgspec.structs.replace(gpu, **{name: None})).partition(": ")[2].split(", ")
        assert len(set(complete) - set(without)) == 1, name
    assert describe_gpu(Gpu(uuid="GPU-1", name="H200", nvml_index=3, cuda_index=3)).endswith("call it 3: no data")


def test_busy_sums_memory_by_user_or_in_all() -> None:
    processes = tuple(
        GpuProcess(number, memory_used_bytes=gib << 30, user=user)
        for number, (user, gib) in enumerate((("me", 1), ("anna", 2), ("me", 3)))
    )
    assert describe_use(processes, "me") == "busy: you, 4.0 GiB; anna, 2.0 GiB"
    assert describe_use(processes[::2], "me") == describe_use_briefly(processes[::2], "me") == "in use by you, 4.0 GiB"
    assert describe_use_briefly(processes, "me") == "busy: 6.0 GiB"
    named = (
        GpuProcess(7, name="python", memory_used_bytes=1 << 30),
        GpuProcess(8, user="anna"),
        GpuProcess(9, user="anna", memory_used_bytes=2 << 30),
        GpuProcess(5),
    )
    assert describe_use(named) == describe_use_briefly(named) == "busy: python, 1.0 GiB; anna; process 5"
    unknown = (GpuProcess(5), GpuProcess(6))
    assert (describe_use(unknown), describe_use_briefly(unknown)) == ("busy: 2 processes", "busy")
    assert describe_use_briefly((*unknown, GpuProcess(7, memory_used_bytes=2 << 30))) == "busy: 2.0 GiB"


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"cuda_index": 0}, "GPU 0"),
        ({"cuda_index": None}, "GPU 1"),
        ({"cuda_index": None, "mig_enabled": True}, "GPU 1 (MIG)"),
        ({"mig": Mig(parent_uuid="", gpu_instance=7, compute_instance=0)}, "GPU 1 MIG 7"),
        ({"mig": Mig(parent_uuid="", gpu_instance=7, compute_instance=1)}, "GPU 1 MIG 7.1"),
    ],
)
def test_gpu_title_has_the_number_of_cuda_or_nvml(values: dict[str, Any], title: str) -> None:
    assert gpu_title(plain_gpu(1, **values)) == title


def test_gpus_are_sorted_as_cuda_counts_them() -> None:
    gpus = [
        plain_gpu(0, cuda_index=None), plain_gpu(1, cuda_index=1), plain_gpu(2, cuda_index=0),
        *(plain_gpu(2, cuda_index=0, mig=Mig(parent_uuid="", gpu_instance=number)) for number in (9, 7)),
    ]  # fmt: skip
    assert [gpus.index(gpu) for gpu in sorted(gpus, key=gpu_sort_key)] == [2, 4, 3, 1, 0]


@pytest.mark.parametrize("error", [KeyError(), OSError()])
def test_current_user_without_a_name_is_none(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=error))
    assert current_user.__wrapped__() is None


def test_states_include_recent_xid() -> None:
    gpu = full_gpu(throttled=(), xids=(Xid(START - 10, 31), Xid(START - 5, 79)))
    (state,) = states(gpu, START)
    assert state.alarming
    assert state.text.startswith("Xid 79: the GPU has fallen off the bus (")
    assert len(states(gpu, START + 3595)) == 1
    assert states(gpu, START + 3596) == ()


def test_states_program_xid_is_not_alarming() -> None:
    (state,) = states(full_gpu(throttled=(), xids=(Xid(START, 31),)), START)
    assert not state.alarming


def test_states_of_lost_gpu() -> None:
    assert states(full_gpu(lost=True), START) == (GpuState("lost", True),)
