"""Pretrained weights: where those of a model are to be had, under which licence, and where they lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlparse

import msgspec

HUB = "https://huggingface.co"
HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""What a repository of the hub keeps a model's weights in, by timm's order: safetensors where it has them."""
TIMM_ENCODER = "tu-"
"""What begins the name of an encoder of segmentation_models_pytorch that is a model of timm's."""

_TITLES = {
    "apache-2.0": "Apache-2.0",
    "bsd-3-clause": "BSD-3-Clause",
    "cc-by-4.0": "CC-BY-4.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "mit": "MIT",
}
_TRUE = ("1", "ON", "YES", "TRUE")


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Where a model's weights come from: a `repository` of the Hugging Face hub at a `revision`, or the file at a
    `url`.

    `licence` is what the library that offers them says of it, in its own words; "" where it says nothing. `bytes` is
    the file's size as far as it is known beforehand, 0 where it is not. `crop` is the share of an image's short side
    that its makers kept of it when they measured the weights, 0 where that is not known.
    """

    repository: str = ""
    revision: str = "main"
    url: str = ""
    licence: str = ""
    bytes: int = 0
    crop: float = 0.0

    @property
    def title(self) -> str:
        """ "timm/resnet50.a1_in1k" or "resnet50-11ad3fa6.pth from download.pytorch.org"."""
        return self.repository or f"{self.files[0]} from {urlparse(self.url).netloc}"

    @property
    def files(self) -> tuple[str, ...]:
        """The names that the file may have, the best first."""
        return HUB_FILES if self.repository else (os.path.basename(urlparse(self.url).path),)

    @property
    def host(self) -> str:
        """The address that they are fetched from, as "https://huggingface.co"."""
        parts = urlparse(self.url)
        return f"{parts.scheme}://{parts.netloc}" if self.url else os.environ.get("HF_ENDPOINT", HUB).rstrip("/")

    @property
    def page(self) -> str:
        """The address at which people find them."""
        return self.url or f"{self.host}/{self.repository}"

    @property
    def licence_title(self) -> str:
        return _TITLES.get(self.licence, self.licence or "licence not stated")

    @property
    def non_commercial(self) -> bool:
        """Whether the licence's name says that it excludes commercial use."""
        return "-nc" in self.licence or "noncommercial" in self.licence


class OnDisk(msgspec.Struct, frozen=True):
    """A weights file on this machine; `path` is "" where there is none."""

    path: str = ""
    bytes: int = 0


def offline() -> bool:
    """Whether the user has forbidden to fetch anything (the rules of huggingface_hub)."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it has fetched (the rules of its `constants`)."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def torch_cache() -> Path:
    """Where torch keeps the weights it has fetched (the rules of `torch.hub.get_dir`)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
    return Path(os.environ.get("TORCH_HOME") or cache).expanduser() / "hub" / "checkpoints"


def cached_path(weights: Weights) -> Path:
    """Where a file that has been fetched by hand is found as if Footplate had done it."""
    if not weights.repository:
        return torch_cache() / weights.files[0]
    return _repository(weights) / "snapshots" / weights.revision / weights.files[0]


def ways_out(weights: Weights) -> str:
    """What to do where weights cannot be fetched."""
    file = f"{weights.files[0]} of {weights.page}" if weights.repository else weights.page
    scratch = "Train from scratch (pretrained weights off; in a terminal, --no-pretrained)"
    return f"{scratch}, give a weights file, or put {file} at {cached_path(weights)}."


def find(weights: Weights) -> OnDisk:
    """The file of these weights on this machine."""
    for path in _paths(weights):
        try:
            if path.is_file():
                return OnDisk(str(path), path.stat().st_size)
        except OSError:
            continue
    return OnDisk()


def _paths(weights: Weights) -> list[Path]:
    if not weights.repository:
        return [cached_path(weights)]
    snapshots = _repository(weights) / "snapshots"
    try:
        commit = (_repository(weights) / "refs" / weights.revision).read_text().strip()
    except (OSError, ValueError):
        commit = ""
    return [snapshots / each / file for each in (commit, weights.revision) if each for file in weights.files]


def _repository(weights: Weights) -> Path:
    return hub_cache() / f"models--{weights.repository.replace('/', '--')}"
