"""Stub of NVIDIA's driver libraries, compiled from C, which the real pynvml loads.

    stub = compile_stub(folder)
    stub.write([make_gpu_profile(0), make_gpu_profile(1, utilization=80)])
    subprocess.Popen([sys.executable, "-m", "engine.gpus"], env=os.environ | stub.environment)

The libraries are found through LD_LIBRARY_PATH, so they act on processes started with `environment`. The first
lines of tests/engine/gpus/stub/*.c list the keys of a profile. tests/support/nvml_profiles.py has complete machines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.cuda_state import CudaState

if sys.platform == "linux":
    import fcntl

SOURCES = Path(__file__).parents[1] / "engine" / "gpus" / "stub"
GIB = 1024**3

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999

SAME_NODE, OTHER_NODE = 40, 50
"""Values of `nvmlGpuTopologyLevel_t` for GPUs that are attached to the same processor or to different ones."""
MAX_GPUS = 16
SWITCH = "000000FE:00:00.0"

Profile = Mapping[str, object]
Built = TypeVar("Built")


@dataclass(frozen=True)
class NvmlStub:
    """Compiled stub libraries in `folder`, and the profile that determines their answers."""

    folder: Path
    profile: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that make a process use the stub."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FOOTPLATE_NVML_PROFILE": str(self.profile)}

    def cuda_order(self, *indices: int) -> dict[str, str]:
        """Return the environment variables that make CUDA enumerate the stub's GPUs in the order of `indices`."""
        state = CudaState(self.profile.with_name("cuda-order"))
        state.write(map(uuid_of, indices))
        return state.environment

    def write(self, gpus: Iterable[Profile] = (), **library: object) -> None:
        """Write the profile that determines the stub's answers.

        `gpus` are profiles from `make_gpu_profile`, and `library` holds values of the NVML library itself.
        """
        lines = [*_format_profile({"driver_version": "595.58.03", "cuda_version": 13020} | library)]
        for gpu in gpus:
            lines += ["gpu", *_format_profile(gpu)]
        temporary = self.profile.with_suffix(".new")
        temporary.write_text("\n".join(lines) + "\n")
        temporary.replace(self.profile)


def find_obstacle() -> str | None:
    """Return the reason why the stub can't be used on this system, or None if it can."""
    if sys.platform != "linux":
        return "the NVML stub is loaded by LD_LIBRARY_PATH, on Linux only"
    if find_compiler() is None:
        return "no C compiler (cc) to build the NVML stub with"
    return None


def find_compiler() -> str | None:
    """Return the path of the system's C compiler, or None if there is none."""
    return shutil.which("cc")


def compile_stub(folder: Path, *, old_driver: bool = False) -> NvmlStub:
    """Build libnvidia-ml.so.1 and libcuda.so.1 in `folder` unless they exist, and return the stub.

    With `old_driver`, the libraries lack the functions that old drivers don't have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-DOLD_DRIVER"] if old_driver else []
    nvml = [path.name for path in sorted(SOURCES.glob("nvml_*.c"))]
    compile_library(folder / "libnvidia-ml.so.1", *nvml, flags=flags)
    compile_library(folder / "libcuda.so.1", "cuda_driver.c", flags=[*flags, "-ldl"])
    return NvmlStub(folder, folder / "profile")


def compile_library(library: Path, *sources: str, flags: Iterable[str] = ()) -> None:
    """Build `library` from the stub's sources unless it already exists."""
    if library.exists():
        return
    command = [find_compiler() or "cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library)]
    subprocess.run(
        [*command, *(str(SOURCES / source) for source in sources), *flags], check=True, env={"PATH": os.environ["PATH"]}
    )


def build_once(temporary: pytest.TempPathFactory, name: str, build: Callable[[Path], Built]) -> Built:
    """Call `build` with the folder `name`, which all test processes share, and return its result.

    Only one process at a time calls `build`, so that later calls can find the results of the first call.
    """
    root = temporary.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build(root / name)


def uuid_of(index: int) -> str:
    """Return the UUID of the stub's GPU `index`."""
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def instance_uuid_of(index: int, number: int) -> str:
    """Return the UUID of MIG instance `number` of the stub's GPU `index`."""
    return f"MIG-{index:08x}-1111-2222-3333-{number:012x}"


def make_gpu_profile(index: int, **changes: object) -> Profile:
    """Make the profile of a healthy GPU behind NVLink switches that reports all quantities of an H200.

    `changes` replaces values of the profile. The value None removes a key, and a list repeats a key. The value of
    "instances" is a list of profiles from `make_instance_profile`.
    """
    profile: dict[str, object] = {
        "name": "NVIDIA H200",
        "uuid": uuid_of(index),
        "bus_id": f"000000FF:{index + 1:02X}:00.0",  # a domain that no machine has in sysfs
        "compute_capability": 90,
        "total": 140 * GIB,
        "used": (index + 1) * GIB,
        "reserved": GIB // 2,
        "utilization": 10 * index % 95 + 5,
        "memory_busy": 3 + index,
        "encoder": 0,
        "decoder": 12,
        "temperature": 40 + index,
        "slowdown": 87,
        "shutdown": 92,
        "memory_max": 95,
        "memory_temperature": 45 + index,
        "power_mw": 100_500 + index,
        "power_limit_mw": 700_000,
        "energy_mj": 123_456_000,
        "sm_clock": 1755,
        "sm_clock_max": 1980,
        "memory_clock": 3201,
        "memory_clock_max": 3201,
        "throttle": 0,
        "pstate": 0,
        "sm_active": 31 + index,
        "tensor_active": 22 + index,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_received_per_s": 8_000_000_000,
        "pcie_sent_per_s": 2_000_000_000,
        "pcie_bits": 32,
        "pcie_replays": 0,
        "ecc": 1,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "ecc_total_corrected": 2,
        "ecc_total_uncorrected": 0,
        "rows_corrected": 1,
        "rows_uncorrected": 0,
        "rows_pending": 0,
        "rows_failed": 0,
        "compute_mode": 0,
        "persistence": 1,
        "mig": 0,
        "nvlinks": 18,
        "nvlink_version": 6,  # NVML's number for NVLink 4
        "nvlink_received_per_s": 3_000_000_000,
        "nvlink_sent_per_s": 1_000_000_000,
        "link": [f"{number}:{SWITCH}:2" for number in range(18)],
        "ancestors": _format_matrix_row(lambda other: SAME_NODE if other // 4 == index // 4 else OTHER_NODE),
        "peers": _format_matrix_row(lambda other: 0),
        "nvlink_peers": _format_matrix_row(lambda other: 0),
        "cores": f"{32 * (index // 4)}-{32 * (index // 4) + 31}",
        "numa_node": index // 4,
    }
    return profile | changes


def make_instance_profile(index: int, number: int, **changes: object) -> Profile:
    """Make the profile of MIG instance `number` of GPU `index`, a seventh of an H200."""
    profile: dict[str, object] = {
        "name": "NVIDIA H200 MIG 1g.18gb",
        "uuid": instance_uuid_of(index, number),
        "gpu_instance": 7 + number,
        "compute_instance": 0,
        "total": 16 * GIB,
        "used": (number + 1) * GIB,
        "reserved": GIB // 8,
        "sm_active": 15 + number,
        "tensor_active": 5 + number,
    }
    return profile | changes


def _format_matrix_row(level: Callable[[int], int]) -> str:
    return ",".join(str(level(other)) for other in range(MAX_GPUS))


def _format_profile(profile: Profile) -> Iterator[str]:
    """Yield the lines "KEY=VALUE" of a profile, followed by those of its MIG instances."""
    instances: list[Profile] = []
    for key, value in profile.items():
        items = value if isinstance(value, list) else [value]
        if key == "instances":
            instances = items
        elif value is not None:
            yield from (f"{key}={item}" for item in items)
    for instance in instances:
        yield "instance"
        yield from _format_profile(instance)
