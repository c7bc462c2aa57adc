"""Profiles of complete machines for the NVML stub, by name.

    MACHINES["eight"].write(stub)

The values of all except "everything" are constant, so that reports can be compared. A machine with an old driver needs
a stub that was compiled with `old_driver=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.nvml_stub import (
    GIB,
    LIB_RM_VERSION_MISMATCH,
    NO_PERMISSION,
    NOT_SUPPORTED,
    NvmlStub,
    Profile,
    make_gpu_profile,
    make_instance_profile,
)

FOREIGN = (4_000_001, 4_000_002, 4_000_003)
"""Process ids above Linux's maximum, so that no such process exists."""

HBM_ONLY = ("memory_temperature", "memory_max")
DATACENTER_ONLY = (
    "ecc", "ecc_corrected", "ecc_uncorrected", "ecc_total_corrected", "ecc_total_uncorrected", "rows_corrected",
    "rows_uncorrected", "rows_pending", "rows_failed", "mig", "nvlinks", "nvlink_version", "nvlink_received_per_s",
    "nvlink_sent_per_s", "link", "nvlink_peers", "sm_active", "tensor_active",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Simulated machine: the profiles of its GPUs and the answers of its NVML library."""

    gpus: tuple[Profile, ...] = ()
    library: Mapping[str, object] = field(default_factory=dict)
    old_driver: bool = False

    def write(self, stub: NvmlStub, **library: object) -> None:
        """Configure `stub` to simulate this machine. `library` overrides values of its NVML library."""
        stub.write(self.gpus, **(dict(self.library) | library))


def make_consumer_gpu_profile(index: int, **changes: object) -> Profile:
    """Make the profile of a desktop GPU, which has a fan but no ECC, NVLink, memory temperature or GPM.

    `changes` are as for `make_gpu_profile`.
    """
    missing: dict[str, object] = dict.fromkeys((*HBM_ONLY, *DATACENTER_ONLY))
    return make_gpu_profile(
        index,
        **missing
        | {
            "name": "NVIDIA GeForce RTX 4090",
            "compute_capability": 89,
            "total": 24 * GIB,
            "used": 6 * GIB,
            "power_limit_mw": 450_000,
            "fan": 34,
            "sm_clock": 2520,
            "sm_clock_max": 3105,
            "memory_clock": 10501,
            "memory_clock_max": 10501,
            "pcie_generation": 4,
            "pcie_generation_max": 4,
            "slowdown": 90,
            "shutdown": 95,
            "persistence": 0,
        }
        | changes,
    )


MACHINES: dict[str, Machine] = {
    "one": Machine((make_consumer_gpu_profile(0, process=[f"{FOREIGN[0]}:{5 * GIB}"], graphics_process=[f"{FOREIGN[1]}:{GIB // 2}"]),)),
    "eight": Machine(tuple(make_gpu_profile(index) for index in range(8))),
    "sixteen": Machine(tuple(make_gpu_profile(index) for index in range(16))),
    # Windows' display driver model: nobody's memory, no shares, no topology.
    "wddm": Machine(
        (
            make_consumer_gpu_profile(
                0, process=[f"{FOREIGN[0]}:-1"], graphics_process=[f"{FOREIGN[0]}:-1", f"{FOREIGN[1]}:-1"],
                process_utilization_error=NOT_SUPPORTED, topology_error=NOT_SUPPORTED, affinity_error=NOT_SUPPORTED,
                persistence=None,
            ),
        )
    ),
    "mig": Machine(
        (
            make_gpu_profile(
                0, mig=1, utilization_error=NOT_SUPPORTED, encoder=None, decoder=None,
                instances=[
                    make_instance_profile(0, 0, process=[f"{FOREIGN[0]}:{GIB}"]),
                    make_instance_profile(0, 9, handle_error=6),  # NVML_ERROR_NOT_FOUND: it was destroyed
                    make_instance_profile(0, 1, process=[f"{FOREIGN[1]}:{2 * GIB}"]),
                    make_instance_profile(0, 2, name="NVIDIA H200 MIG 3g.71gb", total=70 * GIB),
                ],
            ),
            make_gpu_profile(1),
        )
    ),
    # CPU and GPU share their memory, so NVML reports none.
    "unified_memory": Machine(
        (
            make_consumer_gpu_profile(
                0, name="NVIDIA GB10", compute_capability=121, total=None, used=None, reserved=None, memory_clock=None, memory_clock_max=None,
                fan=None, power_limit_mw=None, process=[f"{FOREIGN[0]}:{5 * GIB}"],
            ),
        )
    ),
    "old_driver": Machine(
        (make_consumer_gpu_profile(0, name="NVIDIA GeForce GTX 1080", compute_capability=61, process=[f"{FOREIGN[0]}:{GIB}"]),),
        {"driver_version": "470.256.02", "cuda_version": 11040},
        old_driver=True,
    ),
    "garbage": Machine(
        (
            make_gpu_profile(
                0, utilization=37_100, memory_busy=4_000_000_000, encoder=999, decoder=101, temperature=511,
                memory_temperature=255, slowdown=0, shutdown=4_000_000_000, power_mw=4_000_000_000, power_limit_mw=0,
                used=200 * GIB, fan=4_000, sm_clock=4_000_000_000, sm_clock_max=0, throttle=1 << 30, pstate=32,
                sm_active=3_000, tensor_active=101, compute_mode=77, pcie_generation=4_000_000, pcie_width=0,
                pcie_received_per_s=900_000_000_000,
                process=[f"{FOREIGN[0]}:{999 * GIB}", "0:5"], sample=[f"{FOREIGN[0]}:37100"],
            ),
        )
    ),
    "no_permission": Machine((make_gpu_profile(0),), {"init": NO_PERMISSION}),
    "mismatch": Machine((make_gpu_profile(0),), {"init": LIB_RM_VERSION_MISMATCH}),
    "everything": Machine(
        tuple(
            make_gpu_profile(
                index, wave=1, fan=30 + index, throttle=4, used=(90 + index) * GIB, power_mw=620_000,
                retired_single=1, retired_double=0, retired_pending=0,
                process=[f"{FOREIGN[0]}:{80 * GIB}", f"{FOREIGN[1]}:{10 * GIB}"],
                sample=[f"{FOREIGN[0]}:71", f"{FOREIGN[1]}:9"],
            )
            for index in range(8)
        )
    ),
}  # fmt: skip
