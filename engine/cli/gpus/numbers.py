"""What GPUs are called in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.devices import Gpu
from engine.system.format import NOT_KNOWN


def gpu_numbers(gpus: Sequence[Gpu]) -> dict[str, str]:
    """What each GPU is called, by UUID: CUDA's number, as `--devices` takes it, or NVML's where CUDA counts none.

    A MIG instance is called by its GPU's number and its own: "0/3".
    """
    cuda = any(gpu.cuda_index is not None for gpu in gpus if gpu.mig is None)
    numbers: dict[str, str] = {}
    for gpu in gpus:
        index = gpu.cuda_index if cuda else gpu.nvml_index
        numbers[gpu.uuid] = NOT_KNOWN if index is None else str(index)
        if gpu.mig is not None:
            part = f"{gpu.mig.gpu_instance}" + (f"/{gpu.mig.compute_instance}" if gpu.mig.compute_instance else "")
            numbers[gpu.uuid] = f"{numbers.get(gpu.mig.parent_uuid, NOT_KNOWN)}/{part}"
    return numbers
