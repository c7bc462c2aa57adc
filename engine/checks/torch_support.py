"""Whether the torch that is installed runs on a machine's driver and GPUs, and which one would."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.checks.obstacle import Obstacle
from engine.checks.torch_build import TorchBuild
from engine.contract.devices import Gpu, Nvml, gpu_title
from engine.system.format import listed

Numbers = tuple[int, ...]
"""A version, or a compute capability, so that they compare as they should."""

OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""The oldest Linux driver for all minor versions of each major one of CUDA; Windows' are of the same branches.

Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
Compatibility" (docs.nvidia.com/cuda/cuda-toolkit-release-notes).
"""

OLDEST_TORCH = (2, 11)
"""The oldest torch that Footplate runs with, as pyproject.toml says."""
TOO_NEW_TORCH = "2.16"
"""The first one that it does not."""


class PublishedBuild(NamedTuple):
    """What pytorch.org offers for a version of CUDA: up to which torch, and for GPUs of which compute capabilities."""

    cuda: Numbers
    newest_torch: Numbers
    oldest_gpu: Numbers
    newest_gpu: Numbers


PUBLISHED = (
    PublishedBuild((12, 6), newest_torch=(2, 14), oldest_gpu=(5, 0), newest_gpu=(9, 9)),
    PublishedBuild((12, 8), newest_torch=(2, 11), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
    PublishedBuild((13, 0), newest_torch=(2, 15), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
    PublishedBuild((13, 2), newest_torch=(2, 15), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
)
"""Those for torch 2.11 and newer. Sources: "PyTorch CUDA Support Matrix" in RELEASE.md of pytorch/pytorch; its issues
#178665, by which 12.8 ended with torch 2.11, and #190385 and #196249, by which 12.6 ended with torch 2.14."""

INSTALL = (
    f"uv pip install --python {shlex.quote(sys.executable)} --reinstall-package torch --reinstall-package torchvision "
    f"'torch<{TOO_NEW_TORCH}' torchvision --torch-backend=cu{{}}{{}}"
)
"""By uv, which knows where each build is, and with the Python that runs Footplate, since environments that pipx or uv
have made are not the one of a plain "pip". Without reinstalling, any build of the same version would do for it."""


def torch_obstacles(gpus: Sequence[tuple[Gpu, Numbers | None]], nvml: Nvml, torch: TorchBuild) -> Iterator[Obstacle]:
    """What is wrong with `torch` for `gpus`, each with its compute capability, None where NVML does not tell it."""
    every = tuple(gpu for gpu, _ in gpus)
    known = [capability for _, capability in gpus if capability is not None]
    if torch.cuda is None:
        message = f"torch {torch.version} is built without CUDA, which NVIDIA GPUs need."
        yield Obstacle(every, message, _another_torch(nvml, known))
        return
    cuda = _numbers(torch.cuda)
    if not driver_runs(nvml, cuda):
        message = (
            f"torch {torch.version} is built for CUDA {torch.cuda}, for which NVIDIA driver {nvml.driver_version} is "
            "too old."
        )
        yield Obstacle(every, message, _newer_driver(nvml, cuda, known))
    lacking = [(gpu, capability) for gpu, capability in gpus if capability is not None and not _runs(torch, capability)]
    if lacking:
        there = listed(dict.fromkeys(_dotted(_architecture(name)[1]) for name in torch.architectures))
        named = listed(
            dict.fromkeys(f"{gpu_title(gpu)} ({gpu.name}, {_dotted(capability)})" for gpu, capability in lacking)
        )
        message = f"torch {torch.version} is built for compute capabilities {there}, not for {named}."
        remedy = _another_torch(nvml, [capability for _, capability in lacking])
        yield Obstacle(tuple(gpu for gpu, _ in lacking), message, remedy)


def driver_runs(nvml: Nvml, cuda: Numbers) -> bool:
    """Whether the driver runs what is built for `cuda`, as far as it tells: any minor version of a major one that it
    knows.

    NVML tells the version of libcuda (nvmlSystemGetCudaDriverVersion_v2), and with that of NVIDIA's packages for
    forward compatibility, by which an older driver runs newer programs.
    """
    if nvml.cuda_version:
        return cuda[0] <= _numbers(nvml.cuda_version)[0]
    oldest = OLDEST_DRIVERS.get(cuda[0])
    return oldest is None or not nvml.driver_version or _numbers(nvml.driver_version) >= _numbers(oldest)


def _runs(torch: TorchBuild, capability: Numbers) -> bool:
    """Whether torch has code for GPUs of `capability`, or does not tell.

    Source: CUDA C++ Programming Guide, "Application Compatibility": compiled code ("sm") runs on GPUs of its major
    version from its minor version on, what the driver compiles ("compute") on all later ones.
    """
    built = map(_architecture, torch.architectures)
    return not torch.architectures or any(
        own <= capability and (kind == "compute" or own[0] == capability[0]) for kind, own in built
    )


def _newer_driver(nvml: Nvml, cuda: Numbers, capabilities: Sequence[Numbers]) -> str:
    update = (
        f"Update the driver to {OLDEST_DRIVERS[cuda[0]]} or newer" if cuda[0] in OLDEST_DRIVERS else "Update the driver"
    )
    build = _published(nvml, capabilities)
    if build is not None:
        return f"{update}, or install a torch that fits it: {INSTALL.format(*build.cuda)}"
    return f"{update}; Footplate needs torch {_dotted(OLDEST_TORCH)} or newer, which is not built for older drivers."


def _another_torch(nvml: Nvml, capabilities: Sequence[Numbers]) -> str:
    build = _published(nvml, capabilities)
    if build is not None:
        return f"Install one that fits: {INSTALL.format(*build.cuda)}"
    build = _published(Nvml("ok"), capabilities)
    if build is not None:
        update = f"Update the NVIDIA driver to {OLDEST_DRIVERS[build.cuda[0]]} or newer"
        return f"{update}, then install one that fits: {INSTALL.format(*build.cuda)}"
    return "Choose other devices; no torch that Footplate runs with is built for these."


def _published(nvml: Nvml, capabilities: Sequence[Numbers]) -> PublishedBuild | None:
    """The newest torch that the driver runs on such GPUs, rather for a CUDA that the driver knows in full."""
    known = _numbers(nvml.cuda_version or "")
    fitting = (
        build
        for build in PUBLISHED
        if build.newest_torch >= OLDEST_TORCH
        and driver_runs(nvml, build.cuda)
        and all(build.oldest_gpu <= capability <= build.newest_gpu for capability in capabilities)
    )
    return max(fitting, key=lambda b: (b.newest_torch, not known or b.cuda <= known, b.cuda), default=None)


def _architecture(name: str) -> tuple[str, Numbers]:
    """ "sm_90a" as ("sm", (9, 0))."""
    kind, _, number = name.partition("_")
    return kind, divmod(_numbers(number)[0], 10)


def _numbers(version: str) -> Numbers:
    """ "13.2" as (13, 2)."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _dotted(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))
