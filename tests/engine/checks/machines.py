"""Snapshots of machines, and descriptions of torch builds."""

from __future__ import annotations

import msgspec

from engine.checks.torch_support import TorchBuild
from engine.contract.devices import Cpu, Gpu, GpuProcess, Mig, Nvml, Snapshot

CU132 = TorchBuild("2.15.0+cu132", "13.2", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))
NEWEST = Nvml("ok", driver_version="595.58.03", cuda_version="13.2")


def gpu(index: int = 0, **changes: object) -> Gpu:
    """Return an H200 that has the same index in CUDA and NVML. `changes` override its fields."""
    plain = Gpu(
        uuid=f"GPU-{index}aaaaaaa-1111-2222-3333-444444444444",
        name="NVIDIA H200",
        nvml_index=index,
        cuda_index=index,
        compute_capability=(9, 0),
        compute_mode="default",
        processes=(),
    )
    return msgspec.structs.replace(plain, **changes)


PASCAL = gpu(1, name="NVIDIA GeForce GTX 1080", compute_capability=(6, 1))


def instance(number: int, parent: Gpu) -> Gpu:
    """Return the MIG instance `number` of `parent`, as NVML reports it."""
    uuid = f"MIG-{number}bbbbbbb-1111-2222-3333-444444444444"
    mig = Mig(parent_uuid=parent.uuid, gpu_instance=number, compute_instance=0)
    return Gpu(uuid=uuid, name=f"{parent.name} MIG 1g.18gb", nvml_index=parent.nvml_index, mig=mig, processes=())


def machine(*gpus: Gpu, nvml: Nvml = NEWEST) -> Snapshot:
    cpu = Cpu(name="AMD EPYC", core_load_percent=(1.0,), load_percent=1.0, memory_used_bytes=1, memory_total_bytes=2)
    return Snapshot(time=1.7e9, host="here", nvml=nvml, gpus=gpus or (gpu(),), cpu=cpu)


def driver(version: str | None, cuda: str | None = None) -> Nvml:
    return Nvml("ok", driver_version=version, cuda_version=cuda)


def held_by(*names: str | None) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(4242 + place, user="ada", name=name) for place, name in enumerate(names))
