"""Profiles recorded from real GPUs, replayed by the stub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nvml_stub import NOT_SUPPORTED, NvmlStub, gpu_profile, uuid_of

from .conftest import ROOT, Start

RECORDED = sorted((Path(__file__).parent / "profiles").glob("*.profile"))


def test_that_a_recording_tells_what_the_gpus_told(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([gpu_profile(0, utilization=55), gpu_profile(1, power_error=NOT_SUPPORTED)])
    before = start_sampler("--once", stub=nvml_stub).next().gpus
    recording = subprocess.run(
        [sys.executable, "-m", "tests.support.record_nvml"],
        stdout=subprocess.PIPE,
        env=os.environ | nvml_stub.environment,
        cwd=ROOT,
        check=True,
    ).stdout
    nvml_stub.profile.write_bytes(recording)
    after = start_sampler("--once", stub=nvml_stub).next().gpus
    assert [gpu.uuid for gpu in after] == [uuid_of(0), uuid_of(1)]
    assert after == before


@pytest.mark.parametrize("profile", RECORDED, ids=lambda path: path.stem)
def test_that_recorded_gpus_are_all_listed_with_their_memory(
    nvml_stub: NvmlStub, start_sampler: Start, profile: Path
) -> None:
    recorded = profile.read_text()
    nvml_stub.profile.write_text(recorded)
    snapshot = start_sampler("--once", stub=nvml_stub).next()
    assert (snapshot.nvml.status, snapshot.nvml.message) == ("ok", "")
    assert [f"uuid={gpu.uuid}" for gpu in snapshot.gpus] == [
        line for line in recorded.splitlines() if line.startswith("uuid=")
    ]
    assert all(gpu.memory_total_bytes is None or f"total={gpu.memory_total_bytes}" in recorded for gpu in snapshot.gpus)
