"""Profiles recorded from real GPUs, replayed by the NVML stub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engine.contract.devices import Gpu, Snapshot
from tests.engine.gpus.conftest import ROOT, Start
from tests.support.nvml_stub import NOT_SUPPORTED, NvmlStub, make_gpu_profile, uuid_of

QUICK = ("--interval", "0.1")
RECORDED = sorted((Path(__file__).parent / "profiles").glob("*.profile"))


GB = 1_000_000_000


def is_complete(snapshot: Snapshot) -> bool:
    """Return True if all rates are known and the traffic is within 50% of that in the profile.

    On a busy machine, time can pass between reading the clock and reading a counter.
    """
    return bool(snapshot.gpus) and all(
        gpu.sm_active_percent is not None and list_rates(gpu) == pytest.approx(TRAFFIC, rel=0.5)
        for gpu in snapshot.gpus
    )


def drop_rates(gpu: Gpu) -> Gpu:
    """Return `gpu` without its measured rates."""
    return msgspec.structs.replace(
        gpu,
        nvlinks=tuple(
            msgspec.structs.replace(link, received_bytes_per_s=None, sent_bytes_per_s=None) for link in gpu.nvlinks
        ),
        pcie=msgspec.structs.replace(gpu.pcie, received_bytes_per_s=None, sent_bytes_per_s=None),
    )


def list_rates(gpu: Gpu) -> list[float]:
    """Return the PCIe and NVLink rates of `gpu` in bytes per second. Unknown rates are 0."""
    links = [gpu.pcie, *gpu.nvlinks]
    return [rate or 0.0 for each in links for rate in (each.received_bytes_per_s, each.sent_bytes_per_s)]


TRAFFIC = [8 * GB, 2 * GB, *[3 * GB, GB] * 18]
"""Rates in bytes per second that the stub's profiles simulate, in the order of `list_rates`."""


def test_recording_replays_the_values(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write(
        [
            make_gpu_profile(0, utilization=55, link=None, fan=20),
            make_gpu_profile(1, power_error=NOT_SUPPORTED, link=None),
        ]
    )
    before = start_sampler(*QUICK, stub=nvml_stub).wait_for(is_complete).gpus
    recording = subprocess.run(
        [sys.executable, "-m", "tests.support.record_nvml"],
        stdout=subprocess.PIPE,
        env=os.environ | nvml_stub.environment,
        cwd=ROOT,
        check=True,
    ).stdout
    nvml_stub.profile.write_bytes(recording)
    after = start_sampler(*QUICK, stub=nvml_stub).wait_for(is_complete).gpus
    assert [gpu.uuid for gpu in after] == [uuid_of(0), uuid_of(1)]
    assert [drop_rates(gpu) for gpu in after] == [drop_rates(gpu) for gpu in before]


@pytest.mark.parametrize("profile", RECORDED, ids=lambda path: path.stem)
def test_recorded_gpus_are_listed_with_memory(nvml_stub: NvmlStub, start_sampler: Start, profile: Path) -> None:
    recorded = profile.read_text()
    nvml_stub.profile.write_text(recorded)
    snapshot = start_sampler("--once", stub=nvml_stub).next()
    assert (snapshot.nvml.status, snapshot.nvml.message) == ("ok", "")
    assert [f"uuid={gpu.uuid}" for gpu in snapshot.gpus] == [
        line for line in recorded.splitlines() if line.startswith("uuid=")
    ]
    assert all(gpu.memory_total_bytes is None or f"total={gpu.memory_total_bytes}" in recorded for gpu in snapshot.gpus)
