"""Builders of snapshots for tests of devices."""

from __future__ import annotations

from engine.contract.devices import Cpu, Gpu, GpuProcess, Nvml, NvmlStatus, Snapshot

UUIDS = tuple(f"GPU-{n}aaaaaaa-1111-2222-3333-444444444444" for n in range(8))
CORES = (10.0, 90.0, 50.0, 0.0)


def gpu(n: int = 0, **changes: object) -> Gpu:
    """Return GPU `n` of a machine with two GPUs, whose order in CUDA is the reverse of that in NVML.

    `changes` override its fields.
    """
    values: dict[str, object] = {
        "uuid": UUIDS[n],
        "name": "NVIDIA H200",
        "nvml_index": n,
        "cuda_index": 1 - n,
        "utilization_percent": 87.0,
        "memory_used_bytes": 41 << 30,
        "memory_total_bytes": 141 << 30,
        "temperature_c": 61.0,
        "power_w": 512.0,
        "power_limit_w": 700.0,
        "processes": (),
    }
    return Gpu(**(values | changes))  # type: ignore[arg-type]


def snapshot(
    *gpus: Gpu, time: float = 1_700_000_000.0, status: NvmlStatus = "ok", message: str = "", load: float = 37.0
) -> Snapshot:
    cpu = Cpu(
        name="AMD EPYC",
        core_load_percent=CORES,
        load_percent=load,
        memory_used_bytes=8 << 30,
        memory_total_bytes=32 << 30,
    )
    return Snapshot(time=time, host="here", nvml=Nvml(status, message), gpus=gpus, cpu=cpu)


def held_by(user: str | None, memory_bytes: int) -> tuple[GpuProcess, ...]:
    return (GpuProcess(pid=1, user=user, memory_used_bytes=memory_bytes),)
