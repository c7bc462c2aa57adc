"""A stand-in for NVIDIA's driver libraries, compiled from C, behind the real pynvml.

    stub = compile_stub(folder)
    stub.write([gpu_profile(0), gpu_profile(1, utilization=80)])
    subprocess.Popen([sys.executable, "-m", "engine.gpus"], env=os.environ | stub.environment)

The libraries are found through LD_LIBRARY_PATH, so they act on processes started with `environment`. Keys of the
profile: tests/engine/gpus/stub/nvml_stub.c.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "engine" / "gpus" / "stub"
GIB = 1024**3

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999

Profile = Mapping[str, object]


@dataclass(frozen=True)
class NvmlStub:
    """The compiled libraries in `folder`, and the profile that they answer from."""

    folder: Path
    profile: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use the stub."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FOOTPLATE_NVML_PROFILE": str(self.profile)}

    def write(self, gpus: Iterable[Profile] = (), **library: object) -> None:
        """Writes the profile: each of `gpus` from `gpu_profile`, and the library's own keys."""
        lines = ["driver_version=570.86.15", *_lines(library)]
        for gpu in gpus:
            lines += ["gpu", *_lines(gpu)]
        temporary = self.profile.with_suffix(".new")
        temporary.write_text("\n".join(lines) + "\n")
        temporary.replace(self.profile)


def why_not() -> str | None:
    """Why the stub cannot be used here, None if it can."""
    if sys.platform != "linux":
        return "the NVML stub is loaded by LD_LIBRARY_PATH, on Linux only"
    if compiler() is None:
        return "no C compiler (cc) to build the NVML stub with"
    return None


def compiler() -> str | None:
    """The system's C compiler."""
    return shutil.which("cc")


def compile_stub(folder: Path, *, old_driver: bool = False) -> NvmlStub:
    """Builds libnvidia-ml.so.1 and libcuda.so.1 into `folder`; an old driver lacks newer functions."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, library in (("nvml_stub.c", "libnvidia-ml.so.1"), ("cuda_stub.c", "libcuda.so.1")):
        flags = ["-DOLD_DRIVER"] if old_driver else []
        command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-Wall", *flags, "-o", str(folder / library)]
        subprocess.run([*command, str(SOURCES / source)], check=True, env={"PATH": os.environ["PATH"]})
    return NvmlStub(folder, folder / "profile")


def uuid_of(index: int) -> str:
    """The UUID of the stub's GPU `index`."""
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def gpu_profile(index: int, **changes: object) -> Profile:
    """A healthy GPU; None in `changes` leaves a key out, a list gives it several times."""
    profile: dict[str, object] = {
        "name": "NVIDIA H200",
        "uuid": uuid_of(index),
        "bus_id": f"000000FF:{index + 1:02X}:00.0",  # a domain that no machine has in sysfs
        "total": 140 * GIB,
        "used": (index + 1) * GIB,
        "reserved": GIB // 2,
        "utilization": 10 * index + 5,
        "temperature": 40 + index,
        "power_mw": 100_500 + index,
        "power_limit_mw": 700_000,
    }
    return profile | changes


def cuda_uuids(*indices: int) -> dict[str, str]:
    """Environment in which CUDA counts the stub's GPUs in the order of `indices`."""
    plain = [uuid_of(index).removeprefix("GPU-").replace("-", "") for index in indices]
    return {"FOOTPLATE_CUDA_UUIDS": ",".join(plain)}


def _lines(profile: Profile) -> list[str]:
    return [
        f"{key}={item}"
        for key, value in profile.items()
        if value is not None
        for item in (value if isinstance(value, list) else [value])
    ]
