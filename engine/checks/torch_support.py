"""Checks that the installed torch build supports a machine's driver and GPUs, and a search for builds that do."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from engine.contract.devices import Gpu, Nvml, gpu_title
from engine.system.files import read_file
from engine.system.format import listed

_VERSION = re.compile(r"^__version__ = ['\"](.+)['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda\b[^=\n]*= ['\"](.+)['\"]", re.MULTILINE)
_ARCHITECTURES = re.compile(r"\bcode=(\w+)")


class TorchBuild(NamedTuple):
    """Build of torch.

    Attributes:
        version: Version, e.g. "2.15.0+cu132".
        cuda: Version of CUDA, e.g. "13.2", or None for a build without CUDA.
        architectures: Result of `torch.cuda.get_arch_list()`: "sm_90" is compiled code, "compute_90" is code for the
            driver to compile. It is empty if unknown.
    """

    version: str
    cuda: str | None = None
    architectures: tuple[str, ...] = ()


def find_installed_torch() -> TorchBuild | None:
    """Return the build that `import torch` would load. None if torch is missing or its version is unknown."""
    spec = PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    text = _read_text(folder / "version.py")
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    if version is None:
        return None
    compiled_by = _read_text(folder / "include" / "ATen" / "cuda" / "CUDAConfig.h")
    return TorchBuild(version[1], cuda[1] if cuda else None, tuple(_ARCHITECTURES.findall(compiled_by)))


def _read_text(file: Path) -> str:
    """Return the text of a file, or "" if it can't be read."""
    try:
        return read_file(file).decode()
    except OSError:
        return ""


Numbers = tuple[int, ...]
"""Version or compute capability as a tuple of numbers for comparisons."""

OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""Oldest Linux driver that supports all minor versions of a major CUDA version, keyed by this major version.

On Windows, the driver branches are the same. Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required
Driver Version for CUDA Minor Version Compatibility" (docs.nvidia.com/cuda/cuda-toolkit-release-notes).
"""

OLDEST_TORCH = (2, 11)
"""Oldest supported version of torch, as in pyproject.toml."""
TOO_NEW_TORCH = "2.16"
"""First unsupported version of torch."""


class Obstacle(NamedTuple):
    """Reason (`message`) why torch can't use `gpus` for training, with a remedy."""

    gpus: tuple[Gpu, ...]
    message: str
    remedy: str


class PublishedBuilds(NamedTuple):
    """Builds of torch for one version of CUDA.

    `newest_torch` is the newest version of torch. Compute capabilities from `oldest_gpu` to `newest_gpu` are supported.
    """

    cuda: Numbers
    newest_torch: Numbers
    oldest_gpu: Numbers
    newest_gpu: Numbers


PUBLISHED = (
    PublishedBuilds((12, 6), newest_torch=(2, 14), oldest_gpu=(5, 0), newest_gpu=(9, 9)),
    PublishedBuilds((12, 8), newest_torch=(2, 11), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
    PublishedBuilds((13, 0), newest_torch=(2, 15), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
    PublishedBuilds((13, 2), newest_torch=(2, 15), oldest_gpu=(7, 5), newest_gpu=(12, 9)),
)
"""Published builds of torch 2.11 and newer.

Sources: "PyTorch CUDA Support Matrix" in RELEASE.md of pytorch/pytorch, and its issues #178665 (CUDA 12.8 ended with
torch 2.11), #190385 and #196249 (CUDA 12.6 ended with torch 2.14).
"""

INSTALL = (
    f"uv pip install --python {shlex.quote(sys.executable)} --reinstall-package torch --reinstall-package torchvision "
    f"'torch<{TOO_NEW_TORCH}' torchvision --torch-backend=cu{{}}{{}}"
)
"""Command that installs a build of torch, with a placeholder for the version of CUDA.

uv knows the package index of each build. The command names the Python that runs Footplate, because a plain "pip" may
belong to another environment than that of pipx or uv. Without `--reinstall-package`, an installed build of the same
version would be kept.
"""


def torch_obstacles(gpus: Sequence[tuple[Gpu, Numbers | None]], nvml: Nvml, torch: TorchBuild) -> Iterator[Obstacle]:
    """Yield the reasons why the build `torch` can't use `gpus`.

    Each entry of `gpus` is a GPU with its compute capability, which is None if it is unknown.
    """
    all_gpus = tuple(gpu for gpu, _ in gpus)
    capabilities = [capability for _, capability in gpus if capability is not None]
    if torch.cuda is None:
        message = f"torch {torch.version} is built without CUDA, which NVIDIA GPUs need."
        yield Obstacle(all_gpus, message, _torch_remedy(nvml, capabilities))
        return
    cuda = _parse_numbers(torch.cuda)
    if not driver_supports(nvml, cuda):
        message = (
            f"torch {torch.version} is built for CUDA {torch.cuda}, for which NVIDIA driver {nvml.driver_version} is "
            "too old."
        )
        yield Obstacle(all_gpus, message, _driver_remedy(nvml, cuda, capabilities))
    unsupported = [
        (gpu, capability) for gpu, capability in gpus if capability is not None and not _has_code_for(torch, capability)
    ]
    if unsupported:
        built_for = [capability for _, capability in map(_parse_architecture, torch.architectures)]
        supported = listed(dict.fromkeys(map(_format_numbers, built_for)))
        names = [f"{gpu_title(gpu)} ({gpu.name}, {_format_numbers(capability)})" for gpu, capability in unsupported]
        message = f"torch {torch.version} is built for compute capabilities {supported}, not for {listed(names)}."
        remedy = _torch_remedy(nvml, [capability for _, capability in unsupported])
        yield Obstacle(tuple(gpu for gpu, _ in unsupported), message, remedy)


def driver_supports(nvml: Nvml, cuda: Numbers) -> bool:
    """Return True if the driver supports programs built for the CUDA version `cuda`, or if that is unknown.

    A driver supports all minor versions of each major version that it supports. NVML reports the version of libcuda
    (nvmlSystemGetCudaDriverVersion_v2), which includes NVIDIA's forward compatibility packages for older drivers.
    """
    major, *_ = cuda
    if nvml.cuda_version:
        supported_major, *_ = _parse_numbers(nvml.cuda_version)
        return major <= supported_major
    oldest = OLDEST_DRIVERS.get(major)
    if oldest is None or not nvml.driver_version:
        return True
    return _parse_numbers(nvml.driver_version) >= _parse_numbers(oldest)


def _has_code_for(torch: TorchBuild, capability: Numbers) -> bool:
    """Return True if the torch build has code for GPUs of this compute capability, or if that is unknown.

    Source: CUDA C++ Programming Guide, "Application Compatibility": compiled code ("sm") runs on GPUs of the same major
    version and an equal or higher minor version; code that the driver compiles ("compute") runs on all later GPUs.
    """
    if not torch.architectures:
        return True
    return any(
        architecture <= capability and (kind == "compute" or architecture[0] == capability[0])
        for kind, architecture in map(_parse_architecture, torch.architectures)
    )


def _driver_remedy(nvml: Nvml, cuda: Numbers, capabilities: Sequence[Numbers]) -> str:
    """Return a remedy for a driver that is too old for torch's CUDA version `cuda`: a newer driver, or another torch.

    `capabilities` are the compute capabilities of the GPUs.
    """
    oldest = OLDEST_DRIVERS.get(cuda[0])
    update = f"Update the driver to {oldest} or newer" if oldest is not None else "Update the driver"
    build = _find_fitting_build(nvml, capabilities)
    if build is not None:
        return f"{update}, or install a torch that fits it: {INSTALL.format(*build.cuda)}"
    return f"{update}; Footplate needs torch {_format_numbers(OLDEST_TORCH)} or newer, which is not built for older drivers."


def _torch_remedy(nvml: Nvml, capabilities: Sequence[Numbers]) -> str:
    """Return a remedy for a torch without code for GPUs with these compute capabilities: another torch, if any fits."""
    build = _find_fitting_build(nvml, capabilities)
    if build is not None:
        return f"Install one that fits: {INSTALL.format(*build.cuda)}"
    build = _find_fitting_build(Nvml("ok"), capabilities)  # with any driver
    if build is not None:
        update = f"Update the NVIDIA driver to {OLDEST_DRIVERS[build.cuda[0]]} or newer"
        return f"{update}, then install one that fits: {INSTALL.format(*build.cuda)}"
    return "Choose other devices; no torch that Footplate runs with is built for these."


def _find_fitting_build(nvml: Nvml, capabilities: Sequence[Numbers]) -> PublishedBuilds | None:
    """Return the newest build that the driver and the GPUs support, or None if there is none.

    Among builds of the same torch version, one whose CUDA version the driver fully supports is preferred.
    """
    driver_cuda = _parse_numbers(nvml.cuda_version or "")  # () if it is unknown
    fitting = (
        build
        for build in PUBLISHED
        if build.newest_torch >= OLDEST_TORCH
        and driver_supports(nvml, build.cuda)
        and all(build.oldest_gpu <= capability <= build.newest_gpu for capability in capabilities)
    )

    def preference(build: PublishedBuilds) -> tuple[Numbers, bool, Numbers]:
        return build.newest_torch, not driver_cuda or build.cuda <= driver_cuda, build.cuda

    return max(fitting, key=preference, default=None)


def _parse_architecture(name: str) -> tuple[str, Numbers]:
    """Convert "sm_90a" to ("sm", (9, 0))."""
    kind, _, number = name.partition("_")
    return kind, divmod(_parse_numbers(number)[0], 10)


def _parse_numbers(version: str) -> Numbers:
    """Convert "13.2" to (13, 2)."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _format_numbers(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))
