"""The pictures of a split, each as a uint8 tensor of the size asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psutil
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional

from engine.contract.problems import Problem, errors
from engine.data.formats import recognise
from engine.data.found import FileSplit, IdxSplit, Labels, Recognised, shown
from engine.data.idx import Bytes
from engine.data.idx_dataset import open_idx_pictures
from engine.data.reading import describe_failure, folder_channels, open_picture

KEEP_LIMIT_BYTES = 1 << 30


def may_keep(count: int, channels: int, size: int) -> bool:
    """Whether so many decoded pictures may stay in memory: up to a GiB, and an eighth of what is free."""
    return count * channels * size * size <= min(KEEP_LIMIT_BYTES, psutil.virtual_memory().available // 8)


REDUCING_GAP = 3
"""From this gap up, Pillow's documentation of `Image.resize` finds the result nearly indistinguishable from that of the
whole picture."""


class UnreadablePicture(Exception):  # noqa: N818 - it describes the picture
    """A picture cannot be decoded. `path` is fit to print; `reason` in plain words."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DatasetError(Exception):
    """A folder cannot be trained on; `problems` say why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(map(str, self.problems)))


def fit(picture: Tensor, size: int) -> Tensor:
    """uint8 [N,C,h,w] to [N,C,size,size]: the short side is resized (bilinear, antialiased), the middle is cut out.

    The result may be a view: copying it here would wake torch's threads, of which the training has need.
    """
    height, width = picture.shape[-2:]
    if (height, width) != (size, size):
        scale = size / min(height, width)
        target = (max(size, round(height * scale)), max(size, round(width * scale)))
        if target != (height, width):
            picture = functional.interpolate(picture, target, mode="bilinear", antialias=True)
        top, left = (target[0] - size) // 2, (target[1] - size) // 2
        picture = picture[..., top : top + size, left : left + size]
    return picture


class PictureSet(ABC):
    """A split. `targets` is int64 [N]; `mirror` says whether a mirrored picture means the same."""

    targets: Tensor
    mirror: bool

    def __len__(self) -> int:
        return len(self.targets)

    @abstractmethod
    def path(self, index: int) -> str:
        """What to call the picture in a message."""

    @abstractmethod
    def load(self, index: int, size: int, channels: int) -> Tensor:
        """The picture as uint8 [channels, size, size]. Raises UnreadablePicture."""

    def whole(self, size: int, channels: int) -> Bytes | None:
        """All pictures as uint8 [N, channels, size, size] where they are at hand without decoding one by one."""
        return None


class FilePictures(PictureSet):
    """Pictures as files, decoded when asked for."""

    mirror = True

    def __init__(self, split: FileSplit, folder: str) -> None:
        self.targets = torch.from_numpy(split.labels)
        self._files = split.files
        self._folder = folder

    def path(self, index: int) -> str:
        return shown(os.path.relpath(self._files[index], self._folder))

    def load(self, index: int, size: int, channels: int) -> Tensor:
        try:
            with open(self._files[index], "rb") as stream:
                content = stream.read()
            picture = _decode(content, size, channels)
            return fit(picture[None], size)[0]
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            raise UnreadablePicture(self.path(index), describe_failure(error)) from error


def _decode(content: bytes, size: int, channels: int) -> Tensor:
    """The picture upright, as uint8 [channels, h, w]; transparency is dropped.

    By Pillow, which decodes while other threads run, and a large JPEG at a lower scale that still holds `REDUCING_GAP`
    times `size` pixels each way. torchvision's own decoders are deprecated.
    """
    with open_picture(content) as image:
        image.draft(image.mode, (REDUCING_GAP * size, REDUCING_GAP * size))
        upright = ImageOps.exif_transpose(image)
    if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
        return torch.from_numpy(np.repeat(_to_bytes(upright)[None], channels, 0))
    pixels = np.array(upright.convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _to_bytes(image: Image.Image) -> Bytes:
    """Grey levels of more than 8 bits as uint8 [h, w]: 16 bits keep their scale, wider ones are stretched to their range."""
    values = np.asarray(image, dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    if image.mode != "F" and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    levels: Bytes = ((values - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)
    return levels


class IdxPictures(PictureSet):
    """Pictures in one idx file; mirrored digits are other signs, so they are never mirrored."""

    mirror = False

    def __init__(self, split: IdxSplit, pixels: Bytes) -> None:
        self.targets = torch.from_numpy(split.labels)
        self._rows: Labels | None = split.rows
        self._pixels = pixels
        self._name = shown(os.path.basename(split.images))

    def path(self, index: int) -> str:
        row = index if self._rows is None else int(self._rows[index])
        return f"{self._name} picture {row}"

    def load(self, index: int, size: int, channels: int) -> Tensor:
        row = index if self._rows is None else int(self._rows[index])
        picture = fit(torch.from_numpy(np.array(self._pixels[row])[None, None]), size)[0]
        return picture.expand(channels, size, size)

    def whole(self, size: int, channels: int) -> Bytes | None:
        count, height, width = len(self), *self._pixels.shape[1:]
        plain = (height, width) == (size, size) and channels == 1
        if not plain and not may_keep(count, channels, size):
            return None
        pixels = self._pixels if self._rows is None else self._pixels[self._rows]
        if plain:
            return pixels[:, None]
        out = np.empty((count, channels, size, size), np.uint8)
        for start in range(0, count, 4096):
            part = torch.from_numpy(np.array(pixels[start : start + 4096, None]))
            out[start : start + 4096] = fit(part, size).numpy()
        return out


@dataclass(frozen=True)
class Splits:
    """A dataset opened for training. `channels` is 1 where all pictures are grey, else 3."""

    classes: tuple[str, ...]
    channels: int
    format: str
    train: PictureSet
    val: PictureSet


def open_splits(folder: str, *, val_fraction: float, seed: int) -> Splits:
    """Opens the dataset in `folder`. Raises DatasetError with everything that is wrong."""
    folder = os.path.expanduser(folder)
    found = recognise(folder, val_fraction=val_fraction, seed=seed)
    problems = list(found.problems)
    if errors(problems):
        raise DatasetError(errors(problems))
    if found.format == "idx":
        return _open_idx(found, problems)
    if not isinstance(found.train, FileSplit) or not isinstance(found.val, FileSplit):
        raise DatasetError(problems)
    channels = folder_channels(found.train.files + found.val.files)
    train, val = FilePictures(found.train, folder), FilePictures(found.val, folder)
    return Splits(found.classes, channels, found.format, train, val)


def _open_idx(found: Recognised, problems: list[Problem]) -> Splits:
    halves = []
    opened: dict[str, npt.NDArray[np.uint8] | None] = {}
    for split in (found.train, found.val):
        if isinstance(split, IdxSplit):
            if split.images not in opened:
                opened[split.images] = open_idx_pictures(split, problems)
            pixels = opened[split.images]
            if pixels is not None:
                halves.append(IdxPictures(split, pixels))
    if errors(problems) or len(halves) != 2:
        raise DatasetError(errors(problems))
    return Splits(found.classes, 1, found.format, halves[0], halves[1])
