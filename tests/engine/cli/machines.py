"""Snapshots of machines with GPUs."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.contract.devices import (
    Cpu,
    Ecc,
    Gpu,
    GpuAffinity,
    GpuPair,
    GpuProcess,
    Mig,
    NvLink,
    Nvml,
    Pcie,
    RetiredMemory,
    Snapshot,
    Topology,
    Xid,
)

GIB = 1 << 30
NOON = 1_750_000_000.0
"""Time of the snapshots in seconds since the epoch."""


def gpu(index: int, **values: Any) -> Gpu:
    """Return a GPU that reports only the given values."""
    return Gpu(**({"uuid": f"GPU-{index}", "name": "NVIDIA H200", "nvml_index": index} | values))


def busy_gpu(index: int, **changes: Any) -> Gpu:
    """Return a GPU with values for every column of the table. `changes` override these values."""
    values: dict[str, Any] = {
        "cuda_index": index,
        "pci_bus_id": f"00000000:{index + 10:02X}:00.0",
        "utilization_percent": 87.0 + index,
        "memory_used_bytes": (41 + index) * GIB,
        "memory_total_bytes": 140 * GIB,
        "temperature_c": 61.0,
        "power_w": 640.4,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1980.0,
        "sm_clock_max_mhz": 1980.0,
        "throttled": (),
    }
    return gpu(index, **(values | changes))


def full_gpu(index: int, **changes: Any) -> Gpu:
    """Return a GPU with values for all quantities. `changes` override these values."""
    values: dict[str, Any] = {
        "memory_busy_percent": 31.0,
        "sm_active_percent": 75.0,
        "tensor_active_percent": 40.5,
        "encoder_percent": 0.0,
        "decoder_percent": 3.0,
        "memory_reserved_bytes": GIB // 2,
        "memory_free_bytes": 98 * GIB,
        "memory_temperature_c": 70.0,
        "slowdown_c": 89.0,
        "shutdown_c": 92.0,
        "memory_max_c": 105.0,
        "fan_percent": 55.0,
        "energy_j": 7.2e6,
        "memory_clock_mhz": 3201.0,
        "memory_clock_max_mhz": 3201.0,
        "throttled": ("power_cap",),
        "performance_state": 0,
        "pcie": Pcie(
            generation=4, max_generation=5, width=16, max_width=16, received_bytes_per_s=2.5e9, sent_bytes_per_s=1.25e8,
            replays=3,
        ),
        "nvlinks": tuple(
            NvLink(link=link, active=link != 1, version=4, received_bytes_per_s=12.5e9, sent_bytes_per_s=11.5e9)
            for link in range(2)
        ),
        "ecc": Ecc(enabled=True, corrected=4, uncorrected=0, total_corrected=9, total_uncorrected=2),
        "retired": RetiredMemory(
            pages_single_bit=5, pages_double_bit=6, pages_pending=False, rows_corrected=1, rows_uncorrected=7,
            rows_pending=False, rows_failed=False,
        ),
        "compute_mode": "exclusive_process",
        "persistence": True,
        "mig_enabled": False,
        "xids": (Xid(NOON - 60, 31), Xid(NOON - 5, 79)),
        "processes": (
            GpuProcess(
                4242, 39 * GIB, "ada", "python", command="python train.py --epochs 90", sm_percent=85.0, cpu_percent=101.0,
                host_memory_bytes=7 * GIB, started=NOON - 3723,
            ),
        ),
    }  # fmt: skip
    return busy_gpu(index, **(values | changes))


def instance(parent: Gpu, number: int, **values: Any) -> Gpu:
    """Return the MIG instance `number` of `parent`, which reports only the given values."""
    mig = Mig(parent_uuid=parent.uuid, gpu_instance=number, compute_instance=0, profile="1g.18gb")
    return Gpu(uuid=f"MIG-{parent.uuid}-{number}", name=parent.name, nvml_index=parent.nvml_index, mig=mig, **values)


def machine(*gpus: Gpu, **changes: Any) -> Snapshot:
    """Return the snapshot of a host with `gpus`. `changes` override its fields."""
    cpu = Cpu(
        name="AMD EPYC 9654 96-Core Processor",
        core_load_percent=(10.0, 30.0),
        load_percent=20.0,
        memory_used_bytes=2 * GIB,
        memory_total_bytes=8 * GIB,
    )
    plain = Snapshot(
        time=NOON,
        host="atlas",
        nvml=Nvml("ok", driver_version="570.86.15", cuda_version="12.8"),
        gpus=gpus,
        cpu=cpu,
    )
    return msgspec.structs.replace(plain, **changes)


def two_halves(count: int = 4) -> Topology:
    """Return the topology of `count` GPUs, of which each half is at another processor.

    GPUs 0 and 1, 2 and 3, and so on, are connected by NVLink. All other pairs communicate across the processors.
    """
    linked = {(one, one + 1) for one in range(0, count, 2)}
    pairs = tuple(
        GpuPair(
            one=one, other=other, path="SYS", nvlinks=12 if (one, other) in linked else 0, peer_access=(one, other) in linked
        )
        for one in range(count)
        for other in range(one + 1, count)
    )  # fmt: skip
    places = tuple(
        GpuAffinity(index=i, cores="0-31" if i < count // 2 else "32-63", numa_node=2 * i // count)
        for i in range(count)
    )
    return Topology(pairs, places)
