"""State file that the CUDA and NVML stubs share.

It holds the GPUs of a machine and the memory that each process uses on them. Its layout is `State` in
tests/engine/gpus/stub/cuda_state.h.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20

_HEADER = struct.Struct("=5i4xQ")
"""Layout of the header: gpus, driver_version, copy_us, kernel_us, exact, context_bytes."""
_GPU = struct.Struct("=16sQ5i4x")
"""Layout of a GPU: uuid, total_bytes, major, minor, hangs, error, exclusive."""
_FAULTS = struct.Struct("=2i")
_FAULTS_AT = 32
"""Byte offset of the fields for faults (hangs, error) within a GPU's layout."""
_USER = struct.Struct("=2iQ")
"""Layout of a process on a GPU: pid, context, bytes."""
_USERS, _GPUS = 64, 16
_GPU_BYTES = _GPU.size + _USERS * _USER.size


@dataclass(frozen=True)
class CudaState:
    """State of a simulated machine, stored in the file at `path`."""

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that make a process read this state."""
        return {"FOOTPLATE_CUDA_STATE": str(self.path)}

    def write(
        self,
        uuids: Iterable[str],
        *,
        memory_mib: int = 8192,
        context_mib: int = 64,
        capability: tuple[int, int] = (9, 0),
        driver_version: int = 13020,
        copy_ms: float = 0.0,
        kernel_ms: float = 0.0,
        exact: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Write the state of a machine whose GPUs are unused. `uuids` lists them in CUDA's order.

        `memory_mib` is the memory of each GPU. A process's CUDA context takes `context_mib` of it. Each copy takes
        `copy_ms` and each kernel `kernel_ms`. If `exclusive`, only one process can use a GPU. Unless `exact`, copies to
        the host replace floats that aren't finite by 0, because simulated kernels leave their output uninitialized.
        """
        rows = [
            _GPU.pack(
                bytes.fromhex(uuid.removeprefix("GPU-").replace("-", "")),
                memory_mib * MIB,
                *capability,
                0,
                0,
                exclusive,
            ).ljust(_GPU_BYTES, b"\0")
            for uuid in uuids
        ]
        copy_us, kernel_us = int(copy_ms * 1000), int(kernel_ms * 1000)
        header = _HEADER.pack(len(rows), driver_version, copy_us, kernel_us, exact, context_mib * MIB)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes((header + b"".join(rows)).ljust(_HEADER.size + _GPUS * _GPU_BYTES, b"\0"))

    def set_fault(self, gpu: int, *, hangs: bool = False, error: int = 0) -> None:
        """Make every later call on GPU `gpu` hang, or fail with the CUDA error code `error` (0 for success)."""
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
            _FAULTS.pack_into(shared, _HEADER.size + gpu * _GPU_BYTES + _FAULTS_AT, hangs, error)

    def read_allocated_bytes(self, gpu: int) -> dict[int, int]:
        """Return the bytes that each process, given by its id, has allocated on `gpu` in addition to its CUDA context."""
        content = self.path.read_bytes()
        first = _HEADER.size + gpu * _GPU_BYTES + _GPU.size
        users = _USER.iter_unpack(content[first : first + _USERS * _USER.size])
        return {pid: held for pid, context, held in users if pid and (context or held) and _lives(pid)}


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
