"""Quantities that no panel shows. The sampler must not read them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.contract.devices import Snapshot, SnapshotRequest
from tests.engine.gpus.conftest import Start, has_gpus, readers_of
from tests.support.nvml_stub import GIB, NvmlStub, make_gpu_profile

QUICK = ("--interval", "0.1")
ALWAYS = {"memory", "utilization", "temperature", "power"}
CARDS = ALWAYS | {"throttle"}
"""NVML calls per reading if only device cards are visible."""


class RecordedCalls:
    """NVML calls that the stub has written to `file`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def clear(self) -> None:
        """Delete the recorded calls, so that only later ones are counted."""
        self.file.write_text("")

    def names(self) -> set[str]:
        return {line.split()[1] for line in self.file.read_text().splitlines() if len(line.split()) == 2}

    def count(self, name: str) -> int:
        return self.file.read_text().count(f" {name}\n")


@pytest.fixture
def calls(tmp_path: Path) -> RecordedCalls:
    calls = RecordedCalls(tmp_path / "calls")
    calls.clear()
    return calls


def test_hidden_gpu_gets_minimal_queries(nvml_stub: NvmlStub, start_sampler: Start, calls: RecordedCalls) -> None:
    nvml_stub.write([make_gpu_profile(0, process=[f"4000001:{GIB}"])], calls_file=calls.file)
    sampler = start_sampler(*QUICK, "--listen", stub=nvml_stub)
    full = sampler.wait_for(lambda s: bool(s.gpus) and s.gpus[0].sm_active_percent is not None).gpus[0]
    assert full.sm_clock_mhz is not None
    sampler.send_request(SnapshotRequest(processes=False, activity=False, details=False))
    gpu = sampler.wait_for(lambda s: s.gpus[0].sm_clock_mhz is None).gpus[0]
    calls.clear()
    for _ in range(5):
        sampler.next()
    assert calls.names() - {"fields", "ecc_mode", "mig", "power_limit", "compute_mode"} == CARDS
    assert (gpu.sm_active_percent, gpu.processes, gpu.pcie.generation, gpu.nvlinks) == (None, None, None, ())
    assert (gpu.utilization_percent, gpu.memory_used_bytes, gpu.throttled) == (5, GIB, ())
    assert (gpu.memory_temperature_c, gpu.ecc.total_corrected, gpu.power_limit_w) == (45, 2, 700)
    sampler.send_request(SnapshotRequest())
    again = sampler.wait_for(lambda s: s.gpus[0].sm_active_percent is not None).gpus[0]
    assert (again.sm_clock_mhz, again.pcie.generation, len(again.nvlinks)) == (1755, 5, 18)
    assert again.processes is not None


def test_new_request_is_answered_at_once(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, fan=30)])
    sampler = start_sampler("--interval", "600", "--listen", stub=nvml_stub)
    sampler.send_request(SnapshotRequest(details=False, processes=False))
    # Only the first two readings are sent without a request. The second has rates.
    sampler.wait_for(
        lambda s: bool(s.gpus) and s.gpus[0].sm_clock_mhz is None and s.gpus[0].sm_active_percent is not None
    )
    sampler.send_request(SnapshotRequest())
    gpu = sampler.wait_for(lambda s: s.gpus[0].sm_clock_mhz is not None).gpus[0]
    assert (gpu.processes, gpu.fan_percent, len(gpu.nvlinks)) == ((), 30, 18)


def test_restarted_reader_gets_the_request(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    sampler = start_sampler(*QUICK, "--listen", stub=nvml_stub)
    sampler.send_request(SnapshotRequest(details=False))
    sampler.wait_for(lambda s: bool(s.gpus) and s.gpus[0].sm_clock_mhz is None)
    readers_of(sampler)[0].kill()
    sampler.wait_for(lambda s: s.nvml.status == "error")
    assert sampler.wait_for(lambda s: s.nvml.status == "ok").gpus[0].sm_clock_mhz is None


@pytest.mark.parametrize("line", [b'{"details": 7}', b'{"details"', b"\xff"])
def test_invalid_request_is_ignored(nvml_stub: NvmlStub, start_sampler: Start, line: bytes) -> None:
    nvml_stub.write([make_gpu_profile(0)])
    sampler = start_sampler(*QUICK, "--listen", stub=nvml_stub)
    assert sampler.process.stdin is not None
    sampler.process.stdin.write(line + b"\n")
    sampler.send_request(SnapshotRequest(details=False))
    gpu = sampler.wait_for(lambda s: bool(s.gpus) and s.gpus[0].sm_clock_mhz is None).gpus[0]
    assert gpu.uuid


def test_basics_are_the_only_quantities(nvml_stub: NvmlStub, start_sampler: Start, calls: RecordedCalls) -> None:
    nvml_stub.write([make_gpu_profile(0, process=[f"4000001:{GIB}"])], calls_file=calls.file)
    sampler = start_sampler(*QUICK, "--only-basics", stub=nvml_stub)
    snapshots = [sampler.wait_for(has_gpus) for _ in range(5)]
    met = {"handle", "uuid", "name", "pci", "compute_capability"}
    assert calls.names() == ALWAYS | met | {"power_limit", "compute_mode", "mig", "processes"}
    gpu = snapshots[-1].gpus[0]
    assert (gpu.utilization_percent, gpu.memory_used_bytes, gpu.temperature_c, gpu.power_w) == (5, GIB, 40, 100.5)
    assert (gpu.throttled, gpu.sm_clock_mhz, gpu.memory_busy_percent, gpu.energy_j) == (None, None, None, None)
    assert snapshots[-1].topology is None
    assert gpu.processes is not None
    assert [(process.pid, process.command) for process in gpu.processes] == [(4000001, "")]


def test_quantities_are_read_in_their_lanes(nvml_stub: NvmlStub, start_sampler: Start, calls: RecordedCalls) -> None:
    nvml_stub.write([make_gpu_profile(0, fan=30)], calls_file=calls.file)
    sampler = start_sampler("--interval", "0.05", stub=nvml_stub)
    start = time.monotonic()
    sampler.wait_for(has_gpus)

    def has_been_asked_often(snapshot: Snapshot) -> bool:
        return calls.count("utilization") >= 20

    sampler.wait_for(has_been_asked_often)
    slow = 2 + (time.monotonic() - start) // 5
    assert calls.count("fan") <= slow  # every five seconds
    assert calls.count("thresholds") == 3  # each once
    assert calls.count("affinity") == 2  # CPU and memory, as long as the GPUs stay the same
    assert calls.count("nvlink_state") <= 2 * 18  # state and version of each link, once a minute
    # One call per reading for the fields and two for PCIe; errors and replays every five seconds.
    assert calls.count("fields") <= 3 * (calls.count("utilization") + slow)
