"""Print PyTorch's abilities as a line of JSON, for ``footplate doctor``.

This is done in a separate process because loading PyTorch may crash.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from engine.system.stdio import exit_now


def _try_cuda(torch: ModuleType) -> str:
    """Start CUDA, and return PyTorch's error message if that fails, otherwise ""."""
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return ""


def probe() -> dict[str, Any]:
    """Return facts about loading torch and torchvision, and about CUDA, for `doctor.check_pytorch`.

    If something fails, the key "error" holds the error message, and the keys of later facts are missing.
    """
    facts: dict[str, Any] = {}
    try:
        import torch
        import torchvision

        facts["torch"], facts["torchvision"] = torch.__version__, torchvision.__version__
        facts["built_for_cuda"] = torch.version.cuda
        facts["cuda"] = torch.cuda.is_available()
        facts["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts["nccl"] = torch.distributed.is_nccl_available()
        facts["gloo"] = torch.distributed.is_gloo_available()
        facts["sum"] = float(torch.ones(2).sum())
        if facts["cuda"]:
            facts["cuda_sum"] = float(torch.ones(2, device="cuda").sum())
        elif facts["built_for_cuda"]:
            facts["cuda_error"] = _try_cuda(torch)
        facts["weights_folder"] = torch.hub.get_dir()
    except Exception as error:
        facts["error"] = f"{type(error).__name__}: {error}"
    return facts


if __name__ == "__main__":
    print(json.dumps(probe()))
    exit_now(0)
