"""Throughput of PCIe and NVLink, read from stub counters that grow with time."""

from __future__ import annotations

import itertools

import pytest

from engine.contract.devices import Gpu, Snapshot
from tests.engine.gpus.conftest import Start, has_gpus
from tests.support import nvml_stub as stubs
from tests.support.nvml_stub import NvmlStub, make_gpu_profile

QUICK = ("--interval", "0.1")
GB = 1_000_000_000


def sample_traffic(stub: NvmlStub, start_sampler: Start, **profile: object) -> list[Gpu]:
    """Return the GPU in six consecutive snapshots that contain its PCIe throughput.

    `profile` overrides values of the stub's GPU.
    """
    stub.write([make_gpu_profile(0, **profile)])
    sampler = start_sampler(*QUICK, stub=stub)
    return [sampler.wait_for(has_pcie_rates).gpus[0] for _ in range(6)]


def list_nvlink_rates(gpu: Gpu) -> list[float]:
    """Return all known receive and send rates of the GPU's NVLinks, in bytes per second."""
    rates = (rate for link in gpu.nvlinks for rate in (link.received_bytes_per_s, link.sent_bytes_per_s))
    return [rate for rate in rates if rate is not None]


def has_pcie_rates(snapshot: Snapshot) -> bool:
    return bool(snapshot.gpus) and snapshot.gpus[0].pcie.received_bytes_per_s is not None


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("received", [0, 40_000, 60 * GB])
def test_pcie_counters_may_overflow(nvml_stub: NvmlStub, start_sampler: Start, bits: int, received: int) -> None:
    sent = 11 * GB
    gpus = sample_traffic(nvml_stub, start_sampler, pcie_bits=bits, pcie_received_per_s=received, pcie_sent_per_s=sent)
    # Most are exact; a busy machine can take long between a read at the clock and at the counter.
    assert sorted(abs((gpu.pcie.received_bytes_per_s or 0) - received) for gpu in gpus)[2] <= 0.05 * received
    assert sorted(abs((gpu.pcie.sent_bytes_per_s or 0) - sent) for gpu in gpus)[2] <= 0.05 * sent


def test_pcie_without_counters_is_measured_by_the_driver(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    gpu = sample_traffic(nvml_stub, start_sampler, pcie_bits=None)[0]
    assert gpu.pcie.received_bytes_per_s == pytest.approx(8 * GB, rel=1e-4)
    assert gpu.pcie.sent_bytes_per_s == pytest.approx(2 * GB, rel=1e-4)


def test_unknown_pcie_traffic_is_none(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, pcie_bits=None, pcie_throughput_error=stubs.NOT_SUPPORTED)])
    pcie = start_sampler("--once", stub=nvml_stub).next().gpus[0].pcie
    assert (pcie.received_bytes_per_s, pcie.sent_bytes_per_s, pcie.generation) == (None, None, 5)


def test_pcie_of_sixteen_gpus_is_measured_at_once(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write(make_gpu_profile(index) for index in range(16))
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    sampler.wait_for(has_gpus)
    times = [sampler.next().time for _ in range(6)]
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    assert gaps[0] < 0.3  # in sequence, they would take 16 times 20 ms


@pytest.mark.parametrize(("version", "generation"), [(6, 4), (7, 5)])
def test_nvlink_traffic_of_every_generation(
    nvml_stub: NvmlStub, start_sampler: Start, version: int, generation: int
) -> None:
    nvml_stub.write(
        [make_gpu_profile(0, nvlink_version=version, nvlinks=4, nvlinks_active=3, nvlink_received_per_s=20 * GB)]
    )
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    # A busy machine can take long between a read at the clock and at a counter, but not always. KiB are 2.4% more than kB.
    gpu = sampler.wait_for(
        lambda s: bool(s.gpus) and list_nvlink_rates(s.gpus[0]) == pytest.approx([20 * GB, GB] * 3, rel=0.01)
    ).gpus[0]
    *active, down = gpu.nvlinks
    assert [link.link for link in gpu.nvlinks] == [0, 1, 2, 3]
    assert [(link.active, link.version, link.peer) for link in active] == [(True, generation, "000000FE:00:00.0")] * 3
    assert (down.active, down.received_bytes_per_s) == (False, None)
