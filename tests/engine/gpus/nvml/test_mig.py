"""Readings of MIG instances."""

from __future__ import annotations

from engine.contract.devices import Mig, SnapshotRequest
from tests.engine.gpus.conftest import Start
from tests.support import nvml_stub as stubs
from tests.support.nvml_profiles import MACHINES
from tests.support.nvml_stub import GIB, NvmlStub, instance_uuid_of, make_gpu_profile, make_instance_profile, uuid_of

QUICK = ("--interval", "0.1")


def test_mig_instances_follow_their_gpu(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    MACHINES["mig"].write(nvml_stub)
    sampler = start_sampler(*QUICK, "--listen", stub=nvml_stub)
    gpu, first, second, third, other = sampler.wait_for(
        lambda s: bool(s.gpus) and s.gpus[1].sm_active_percent is not None
    ).gpus
    assert (gpu.uuid, gpu.mig_enabled, gpu.mig, gpu.utilization_percent) == (uuid_of(0), True, None, None)
    assert gpu.temperature_c == 40
    assert [row.uuid for row in (first, second, third)] == [instance_uuid_of(0, number) for number in range(3)]
    assert first.mig == Mig(parent_uuid=uuid_of(0), gpu_instance=7, compute_instance=0, profile="1g.18gb")
    assert third.mig is not None
    assert third.mig.profile == "3g.71gb"
    assert (first.memory_used_bytes, first.memory_total_bytes) == (GIB, 16 * GIB)
    assert (first.nvml_index, first.pci_bus_id, first.compute_capability) == (0, gpu.pci_bus_id, (9, 0))
    assert (first.temperature_c, first.utilization_percent, first.power_w) == (None, None, None)
    assert (first.sm_active_percent, first.tensor_active_percent, second.sm_active_percent) == (15, 5, 16)
    pids = [[process.pid for process in row.processes or ()] for row in (gpu, first, second, third)]
    assert pids == [[], [4_000_001], [4_000_002], []]
    assert (other.uuid, other.mig_enabled) == (uuid_of(1), False)
    sampler.send_request(SnapshotRequest(details=False))  # makes the sampler list the instances again
    assert sampler.wait_for(lambda s: s.gpus[0].sm_clock_mhz is None).gpus[1].sm_active_percent == 15


def test_mig_instance_without_answer_is_dropped(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    removed = make_instance_profile(
        0, 1, memory_error=6
    )  # NVML_ERROR_NOT_FOUND, as of a handle whose instance was destroyed
    nvml_stub.write([make_gpu_profile(0, mig=1, instances=[make_instance_profile(0, 0, gpu_instance=0), removed])])
    sampler = start_sampler(*QUICK, stub=nvml_stub)
    gpus = sampler.wait_for(lambda s: len(s.gpus) > 1 and s.gpus[1].sm_active_percent == 15).gpus
    assert [(gpu.uuid, gpu.lost) for gpu in gpus] == [(uuid_of(0), False), (instance_uuid_of(0, 0), False)]


def test_gpu_without_mig_has_no_mig_state(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    nvml_stub.write([make_gpu_profile(0, mig=None), make_gpu_profile(1, mig_error=stubs.NOT_SUPPORTED)])
    assert [gpu.mig_enabled for gpu in start_sampler("--once", stub=nvml_stub).next().gpus] == [None, None]
