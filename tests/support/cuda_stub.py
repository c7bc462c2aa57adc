"""Stub of CUDA, compiled from C, behind PyPI's CUDA build of torch.

    cuda = CudaStub.compiled(folder)
    machine = cuda.create_machine(tmp_path, gpus=2)
    group = WorkerGroup(forker, job, folder, environment=machine.environment)  # workers that see two GPUs
    machine.state.set_fault(0, hangs=True)  # while processes run
    assert machine.read_events("context") == [...]

tests/engine/gpus/stub/cuda_stub.h lists what is real. Kernels do nothing, so computed values are meaningless. The NVML
stub sees the same GPUs, memory and processes.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import nvml_stub
from tests.support.cuda_state import MIB, CudaState
from tests.support.nvml_stub import NvmlStub, compile_library, compile_stub, make_gpu_profile, uuid_of


class RecordedEvent(NamedTuple):
    """Event that the stub recorded: process and thread that caused it, index of the GPU, kind and details.

    The kinds and their details are described in tests/engine/gpus/stub/cuda_stub.h.
    """

    pid: int
    thread: int
    gpu: int
    kind: str
    details: str


def find_obstacle() -> str | None:
    """Return the reason why the stub can't be used on this system, or None if it can."""
    if _find_headers() is None:
        return "torch is no CUDA build: CUDA's headers, which Triton brings along, are missing"
    return nvml_stub.find_obstacle()


@dataclass(frozen=True)
class CudaStub:
    """Compiled stub libraries in `folder`, including the one for NVML."""

    folder: Path

    @classmethod
    def compiled(cls, folder: Path) -> CudaStub:
        headers = _find_headers()
        assert headers is not None, find_obstacle()
        compile_stub(folder)
        parts = [f"cuda_{piece}.c" for piece in ("devices", "streams", "math", "nccl")]
        compile_library(folder / "libcudart-stub.so", *parts, flags=[f"-I{headers}", "-lpthread", "-ldl"])
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that load the stub into a process.

        `CudaMachine.environment` adds simulated GPUs.
        """
        return {
            "LD_PRELOAD": str(self.folder / "libcudart-stub.so"),
            "LD_LIBRARY_PATH": str(self.folder),
            # cuDNN's newer interface builds plans that a stub can't simulate.
            "TORCH_CUDNN_V8_API_DISABLED": "1",
        }

    def create_machine(self, folder: Path, gpus: int = 1, *, memory_mib: int = 8192, **values: Any) -> CudaMachine:
        """Create a machine with the first `gpus` GPUs of the NVML stub. `values` are passed to `CudaState.write`."""
        folder.mkdir(parents=True, exist_ok=True)
        uuids = tuple(map(uuid_of, range(gpus)))
        nvml = NvmlStub(self.folder, folder / "nvml-profile")
        machine = CudaMachine(self, folder, uuids, nvml, CudaState(folder / "cuda-state"))
        profile = {"total": memory_mib * MIB, "used": 0, "reserved": 0}
        machine.nvml.write([make_gpu_profile(number, **profile) for number in range(gpus)], driver_version="595.58.03")
        machine.state.write(uuids, memory_mib=memory_mib, **values)
        return machine


@dataclass(frozen=True)
class CudaMachine:
    """Simulated machine with GPUs. It records the CUDA calls of processes that are started with `environment`."""

    stub: CudaStub
    folder: Path
    uuids: tuple[str, ...]
    nvml: NvmlStub
    state: CudaState

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that make this machine's GPUs visible to a process and its children."""
        return {
            **self.stub.environment,
            **self.nvml.environment,
            **self.state.environment,
            "FOOTPLATE_CUDA_NOTES": str(self._notes),
        }

    @property
    def _notes(self) -> Path:
        return self.folder / "cuda-notes"

    def read_events(self, kind: str | None = None) -> list[RecordedEvent]:
        """Return the recorded events of one kind, or all events, in order."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [note for note in map(_parse_event, lines) if kind in (None, note.kind)]


def _parse_event(line: str) -> RecordedEvent:
    pid, thread, gpu, kind, details = line.split(" ", 4)
    return RecordedEvent(int(pid), int(thread), int(gpu), kind, details)


@functools.cache
def _find_headers() -> Path | None:
    """Return the folder of cuda_runtime_api.h, which Triton includes, or None if Triton isn't installed."""
    for folder in map(Path, sys.path):
        found = folder / "triton/backends/nvidia/include"
        if (found / "cuda_runtime_api.h").exists():
            return found
    return None
