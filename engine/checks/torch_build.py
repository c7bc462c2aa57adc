"""Installed build of torch, read from its files, because importing torch takes seconds."""

from __future__ import annotations

import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

from engine.system.files import read_file

_VERSION = re.compile(r"^__version__ = ['\"](.+)['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda\b[^=\n]*= ['\"](.+)['\"]", re.MULTILINE)
_ARCHITECTURES = re.compile(r"\bcode=(\w+)")


class TorchBuild(NamedTuple):
    """Build of torch.

    Attributes:
        version: As in "2.15.0+cu132".
        cuda: As in "13.2"; None for a build without CUDA.
        architectures: Values of `torch.cuda.get_arch_list()`: "sm_90" is compiled code, "compute_90" is compiled by the
            driver; empty if unknown.
    """

    version: str
    cuda: str | None = None
    architectures: tuple[str, ...] = ()


def installed_torch() -> TorchBuild | None:
    """Return the build that an import would find; None if torch is missing or its version is unknown."""
    spec = PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    text = _text(folder / "version.py")
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    if version is None:
        return None
    compiled_by = _text(folder / "include" / "ATen" / "cuda" / "CUDAConfig.h")
    return TorchBuild(version[1], cuda[1] if cuda else None, tuple(_ARCHITECTURES.findall(compiled_by)))


def _text(file: Path) -> str:
    try:
        return read_file(file).decode()
    except OSError:
        return ""
