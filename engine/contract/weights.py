"""Pretrained weights: their source, license, and location on this machine."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import urlparse

import msgspec

from engine.system.files import read_file
from engine.system.format import listed

HUB = "https://huggingface.co"
PYPI = "https://pypi.org"
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""Possible names of a weights file in a repository on the Hugging Face Hub, in timm's order of preference."""
TIMM_ENCODER = "tu-"
"""Prefix that segmentation_models_pytorch uses for encoders from timm."""
INCLUDED_MODEL = "tf_efficientnet_lite0"
"""Name of the timm model whose weights are included in the installation."""
INCLUDED_ENCODER = f"{TIMM_ENCODER}{INCLUDED_MODEL}"
"""Name of `INCLUDED_MODEL` as an encoder in segmentation_models_pytorch."""

FROM_SCRATCH = "train from scratch (pretrained weights off; in a terminal, --no-pretrained)"

_TITLES = {
    "apache-2.0": "Apache-2.0",
    "bsd-3-clause": "BSD-3-Clause",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "mit": "MIT",
}
_TRUE = ("1", "ON", "YES", "TRUE")


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Source of a model's pretrained weights.

    Exactly one of these is set: `repository` (on the Hugging Face Hub, at a `revision`), `url` (of the file), or
    `package` (an installed package, by its import name, that contains the file at `path`).

    Attributes:
        path: Path of the file in its package or repository, or "" for any of `HUB_FILES` in a repository.
        license: License named by the library that offers the weights, or "" if it names none.
        bytes: Size of the file, or 0 if it is unknown before the download.
        crop: Fraction of an image's shorter side that the center crop kept when the weights were evaluated, or 0 if
            unknown.
        sha256: Hash of the file, or "" if it is unknown or part of the file name.
    """

    repository: str = ""
    revision: str = "main"
    url: str = ""
    package: str = ""
    path: str = ""
    license: str = ""
    bytes: int = 0
    crop: float = 0.0
    sha256: str = ""

    @property
    def is_included(self) -> bool:
        """True if the weights come with the installation, as a file in a package that Footplate depends on."""
        return bool(self.package)

    @property
    def distribution(self) -> str:
        """Name of the pip package that contains included weights."""
        return self.package.replace("_", "-")

    @property
    def title(self) -> str:
        """Name for users: "timm/resnet50.a1_in1k" or "resnet50-11ad3fa6.pth from download.pytorch.org"."""
        if self.is_included:
            return f"{self.distribution} (included)"
        return self.repository or f"{self.files[0]} from {urlparse(self.url).netloc}"

    @property
    def files(self) -> tuple[str, ...]:
        """Possible names of the weights file in its repository or cache, the preferred one first."""
        if self.repository and not self.path:
            return HUB_FILES
        return (os.path.basename(self.path or urlparse(self.url).path),)

    @property
    def host(self) -> str:
        """URL of the server that offers the weights, such as "https://huggingface.co"."""
        if self.is_included:
            return PYPI
        if self.repository:
            return os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
        parts = urlparse(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def page(self) -> str:
        """URL of a web page about the weights."""
        if self.is_included:
            return f"{PYPI}/project/{self.distribution}/"
        return self.url or f"{self.host}/{self.repository}"

    @property
    def license_title(self) -> str:
        return _TITLES.get(self.license, self.license or "license not stated")

    @property
    def is_non_commercial(self) -> bool:
        """True if the name of the license excludes commercial use."""
        return "-nc" in self.license or "noncommercial" in self.license


class WeightsFile(msgspec.Struct, frozen=True):
    """Pretrained weights file on this machine. `path` is "" if it is missing."""

    path: str = ""
    bytes: int = 0


class WeightsDisk(Protocol):
    """Source of information about weights files on this machine and about servers.

    Its methods return None if they don't know the answer.
    """

    def weights(self, weights: Weights) -> WeightsFile | None:
        """Return the file with `weights` on this machine, or None if it is unknown.

        The path is "" if the file is missing.
        """

    def can_reach(self, host: str) -> bool | None:
        """Return True if a server answers, False if it can't be reached, or None if this is unknown.

        `host` is its URL, such as "https://huggingface.co".
        """


def is_offline() -> bool:
    """Return True if the user forbids downloads with the environment variables of huggingface_hub."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def hub_cache() -> Path:
    """Return the cache folder of huggingface_hub, following the rules of its module `constants`."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def torch_cache() -> Path:
    """Return the folder where torch stores downloaded weights, following the rules of `torch.hub.get_dir`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
    return Path(os.environ.get("TORCH_HOME") or cache).expanduser() / "hub" / "checkpoints"


def cached_path(weights: Weights) -> Path:
    """Return the path of a weights file on this machine, which need not exist.

    Included weights are in their package. All others are in the cache of torch or, if they have a repository, of
    huggingface_hub, where a file that the user copies to the path is also found.
    """
    if weights.is_included:
        return _find_package_folder(weights.package) / weights.path
    if not weights.repository:
        return torch_cache() / weights.files[0]
    return _find_cached_repository(weights) / "snapshots" / weights.revision / weights.files[0]


def unavailable_remedy(weights: Weights, instead: Sequence[str] = (FROM_SCRATCH,)) -> str:
    """Return a sentence with remedies for unavailable weights. `instead` lists ways to train without them."""
    if weights.is_included:
        remedies = [f"reinstall the weights with `pip install --force-reinstall --no-deps {weights.distribution}`"]
    else:
        file = f"{weights.files[0]} of {weights.page}" if weights.repository else weights.page
        remedies = ["give a weights file", f"put {file} at {cached_path(weights)}"]
    text = f"{listed([*instead, *remedies], 'or')}."
    return text[:1].upper() + text[1:]


def find_weights(weights: Weights) -> WeightsFile:
    """Return the file with these weights on this machine. Its path is "" if it is missing."""
    for path in _list_possible_paths(weights):
        try:
            if path.is_file():
                return WeightsFile(str(path), path.stat().st_size)
        except OSError:
            continue
    return WeightsFile()


def is_available(weights: Weights, disk: WeightsDisk) -> bool | None:
    """Return True if pretrained weights are on this machine or can be downloaded, or None while `disk` doesn't know."""
    on_disk = disk.weights(weights)
    if on_disk is None:
        return None
    if on_disk.path:
        return True
    is_downloadable = not weights.is_included and not is_offline()
    return disk.can_reach(weights.host) if is_downloadable else False


def explain_unavailability(weights: Weights) -> str:
    """Return a clause that explains why missing weights are unavailable, such as "huggingface.co can't be reached"."""
    if weights.is_included:
        return f"{cached_path(weights)} is missing"
    if is_offline():
        variable = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
        return f"{variable} forbids downloads"
    return f"{urlparse(weights.host).netloc} can't be reached"


def _list_possible_paths(weights: Weights) -> list[Path]:
    """Return the paths at which the weights may be on this machine, best first.

    The cache of the Hub has a folder for each commit. A file `refs/REVISION` names the latest commit of a revision.
    """
    if not weights.repository:
        return [cached_path(weights)]
    repository = _find_cached_repository(weights)
    try:
        commit = read_file(repository / "refs" / weights.revision).decode().strip()
    except (OSError, ValueError):
        commit = ""
    versions = [version for version in (commit, weights.revision) if version]  # users put files into the second one
    return [repository / "snapshots" / version / file for version in versions for file in weights.files]


def _find_package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it, or the folder where pip would install it."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(folders[0]) if folders else Path(sysconfig.get_path("purelib")) / package


def _find_cached_repository(weights: Weights) -> Path:
    """Return the folder of the weights' repository in the cache of huggingface_hub."""
    return hub_cache() / f"models--{weights.repository.replace('/', '--')}"
