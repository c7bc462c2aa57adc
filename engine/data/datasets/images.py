"""Images of a split, as uint8 tensors of the requested size."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.images import Framing
from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes
from engine.data.decoding.images import decode, decode_letterboxed, decode_stretched, fit
from engine.data.decoding.limits import require_size
from engine.data.decoding.mask_survey import SAMPLED_MASKS
from engine.data.decoding.mask_values import NO_CLASS, class_plane, read_values
from engine.data.decoding.orientation import turn_upright_like_image
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.decoding.tiff import Bands
from engine.data.decoding.view import letterbox_plane
from engine.data.files import Files
from engine.data.formats.shared.unpacking import stable_root
from engine.data.splits import (
    FileSplit,
    IdxSplit,
    Labels,
    LabelSplit,
    MaskCode,
    MaskSplit,
    dataset_error,
    printable,
    spread_evenly,
)
from engine.data.transforms.device_transforms import Placement


class UnreadableImage(Exception):  # noqa: N818 - it describes the image
    """Raised when an image can't be decoded. `path` is printable, and `reason` is written for users."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DatasetError(Exception):
    """Raised when a dataset folder can't be used for training. `problems` explain why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(map(str, self.problems)))


class ImageSet(ABC):
    """Split of images with their targets.

    Targets for single pixels, such as classes, are stored in planes: additional channels of the loaded image, which
    augmentations move together with it.

    Attributes:
        targets: Target of each image, such as its class, int64 [N]. It is not set by subclasses that override
            `targets_of` because images have different numbers of targets.
        mirror: True if a mirrored image has the same meaning.
    """

    targets: Tensor
    mirror: bool
    folder = ""
    """Folder of the dataset if the images are files in it, else ""."""
    files: Sequence[str] = ()
    """Path of each image, or () if the images are not separate files."""
    companions: Sequence[str] = ()
    """Path of a second file for each image, such as its mask, or () if images have no second files."""
    cache_key = ""
    """Text that identifies all settings that affect the loaded images, to keep their caches apart."""
    framing: Framing = "crop"
    """Way to make images square (see `Framing`)."""
    bands: Bands | None = None
    """Conversion of multi-band images (see `engine.data.decoding.tiff`) to channels, or None for ordinary images."""
    planes = 0
    """Number of planes after the image's channels."""
    outside: tuple[int, ...] = ()
    """Value of each plane in the area around the image."""
    extends_edges = False
    """True to fill the area around an image with its outermost pixels instead of black."""
    can_stretch = False
    """True if the class implements `load_stretched`."""

    def __len__(self) -> int:
        return len(self.targets)

    def path(self, index: int) -> str:
        """Return the name of the image with this index, for messages to the user."""
        return printable(os.path.relpath(self.files[index], self.folder))

    @abstractmethod
    def load(self, index: int, size: int, channels: int) -> Tensor:
        """Return an image and its planes of targets as uint8 [channels + planes, size, size].

        Raises UnreadableImage, or DatasetError if the dataset folder has disappeared.
        """

    def load_stretched(self, index: int, size: int, channels: int) -> tuple[Tensor, float]:
        """Return an image stretched to uint8 [channels, size, size], and its original aspect ratio (width / height).

        Raises UnreadableImage, or DatasetError if the dataset folder has disappeared.
        """
        raise NotImplementedError

    @contextmanager
    def _convert_errors(self, index: int) -> Iterator[None]:
        """Convert exceptions in the block, which reads or decodes an image, to UnreadableImage.

        Raises DatasetError instead if the dataset folder has disappeared.
        """
        try:
            yield
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            if isinstance(error, OSError) and is_missing(self.folder):
                raise create_lost_folder_error(self.folder) from error
            raise UnreadableImage(self.path(index), describe_failure(error)) from error

    def targets_of(self, samples: Labels) -> Tensor:
        """Return the targets of the images `samples` [n] in a new tensor on the CPU."""
        return torch.from_numpy(self.targets.numpy()[samples])  # doesn't use torch's thread pool

    def identity(self) -> Iterator[bytes | memoryview]:
        """Yield bytes for a hash that identifies this split by the names, order and targets of its images.

        Names are relative to the dataset folder, so that they are equal on every computer.
        """
        yield f"{len(self)} {self.cache_key}".encode()
        for files in (self.files, self.companions):
            root = stable_root(files[0], self.folder) if len(files) else self.folder
            if isinstance(files, Files):
                yield from files.identity(root)
            else:
                yield os.fsencode("\0".join(files)).replace(os.fsencode(root), b"")
        for numbers in self._target_arrays():
            yield np.ascontiguousarray(numbers).data

    def _target_arrays(self) -> Iterable[npt.NDArray[Any]]:
        """Return all arrays that determine the targets. `identity` hashes them."""
        return (self.targets.numpy(),)

    def batch_targets(self, rows: Tensor, planes: Tensor | None, placement: Placement | None, size: int) -> Tensor:
        """Return the targets of a batch on its device, in new memory, without synchronizing with a GPU.

        This default implementation returns `rows` without planes, int64 [n, size, size] with one plane, and int64 [n,
        planes, size, size] with several.

        Args:
            rows: Rows returned by `targets_of`, [n * tiles, ...], where `tiles` is the number of loaded images in each
                input: more than 1 for a mosaic. They may be overwritten.
            planes: Planes of targets after the augmentation, uint8 [n, planes, size, size], or None if the split has no
                planes.
            placement: Position of the loaded images in the model's input, or None if the images were not moved.
            size: Side of the model's input images, in pixels.
        """
        if planes is None:
            return rows
        return planes[:, 0].long() if self.planes == 1 else planes.long()

    def drop_remnants(self, planes: Tensor, before: Tensor, placement: Placement) -> Tensor:
        """Return `planes` without the objects that an augmentation has mostly moved out of the image.

        `planes` and `before` are the planes of targets after and before the augmentation, uint8 [n, planes, size,
        size]. `placement` is the position of the loaded images in the model's input. This default implementation is for
        targets that are not objects, and returns `planes` unchanged.
        """
        return planes

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of samples, objects or pixels in each of the first `classes` classes."""
        return torch.bincount(self.targets, minlength=classes).tolist()

    def load_many(self, indices: Labels, size: int, channels: int) -> Bytes | None:
        """Return several images at once as uint8 [n, channels, size, size], or None if the dataset can't do that.

        Only datasets without unreadable images support it.
        """
        return None

    def mapped_file(self, size: int, channels: int) -> tuple[Bytes, Labels | None] | None:
        """Return a memory-mapped file with all images in the requested size, or None if there is no such file.

        The file is uint8 [rows, channels, size, size]. It is returned together with the row of each image, or with None
        if image i is in row i.
        """
        return None


class FileImages(ImageSet):
    """Split of image files that are decoded on demand."""

    mirror = True
    can_stretch = True

    def __init__(self, split: FileSplit, folder: str) -> None:
        self.targets = torch.from_numpy(split.labels)
        self.folder = folder
        self.files = split.files

    def load(self, index: int, size: int, channels: int) -> Tensor:
        with self._convert_errors(index):
            return torch.from_numpy(decode(read_image(self.files[index]), size, channels, self.bands))

    def load_stretched(self, index: int, size: int, channels: int) -> tuple[Tensor, float]:
        with self._convert_errors(index):
            pixels, aspect = decode_stretched(read_image(self.files[index]), size, channels, self.bands)
            return torch.from_numpy(pixels), aspect


class LabeledImages(FileImages):
    """Split of images that may have several labels each.

    `targets` are float32 [N, C]: 1 if the image has the label, otherwise 0.
    """

    def __init__(self, split: LabelSplit, folder: str) -> None:
        self.targets = torch.from_numpy(split.labels).float()
        self.folder = folder
        self.files = split.files

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of images with each label."""
        counts: list[float] = self.targets.sum(0).tolist()
        return counts


class LetterboxedImages(ImageSet):
    """Split of image files that are letterboxed: each image is scaled to fit completely inside a square."""

    mirror = True
    framing: Framing = "whole"

    def load(self, index: int, size: int, channels: int) -> Tensor:
        with self._convert_errors(index):
            image, sides = decode_letterboxed(read_image(self.files[index]), channels, size, self.bands)
            return torch.from_numpy(self._add_planes(index, image, sides))

    @abstractmethod
    def _add_planes(self, index: int, image: Bytes, sides: tuple[int, int]) -> Bytes:
        """Return the letterboxed `image`, uint8 [C, size, size], with the planes of its targets after its channels.

        `sides` are the height and width of the image before it was letterboxed.
        """


class MaskedImages(LetterboxedImages):
    """Split of images with one mask each. A plane after the channels holds the class of each pixel."""

    planes = 1
    outside = (NO_CLASS,)

    def __init__(self, split: MaskSplit, code: MaskCode, folder: str) -> None:
        self.targets = torch.zeros(len(split.files), dtype=torch.int64)  # unused, since the planes hold the targets
        self.folder = folder
        self.files, self.companions = split.files, split.masks
        self.cache_key = repr(code)
        self._code = code

    def with_code(self, code: MaskCode) -> Self:
        """Return a copy of the split with another mapping from mask values to classes."""
        images = copy.copy(self)
        images.cache_key, images._code = repr(code), code
        return images

    def class_plane(self, index: int) -> Bytes:
        """Return the class of each pixel in the mask of an image, [h, w].

        Raises Unfit, and any exception of the decoder.
        """
        return class_plane(read_values(read_image(self.companions[index])), self._code)

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of pixels in each class, counted in an evenly spaced sample of the masks."""
        counts = np.zeros(NO_CLASS + 1, np.int64)
        for number in spread_evenly(len(self), SAMPLED_MASKS):
            try:
                plane = self.class_plane(number)
            except Exception:
                continue  # a decoder may raise nearly anything; loading the image reports it
            counts += np.bincount(plane.ravel(), minlength=NO_CLASS + 1)
        return counts[:classes].tolist()

    def _add_planes(self, index: int, image: Bytes, sides: tuple[int, int]) -> Bytes:
        """Return a letterboxed image followed by its plane of classes. Raises Unfit if the mask has another size."""
        plane = turn_upright_like_image(self.class_plane(index), self.files[index], sides)
        height, width = plane.shape
        require_size((height, width), sides, message_start="its mask has")
        return np.concatenate([image, letterbox_plane(plane, image.shape[-1], NO_CLASS)[None]])


def is_missing(folder: str) -> bool:
    """Return True if a folder is empty or can't be read, which happens if its disk was removed."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return True


def create_lost_folder_error(folder: str) -> DatasetError:
    """Return the error to raise if the folder of a dataset has disappeared during a run."""
    message = (
        f"The dataset's folder {printable(folder)} no longer exists: it was renamed or deleted, or its disk is gone."
    )
    return DatasetError([dataset_error(message, "Put it back, then resume the run.")])


class IdxImages(ImageSet):
    """Split of images in one idx file. They are never mirrored in training, since they are usually digits."""

    mirror = False

    def __init__(self, split: IdxSplit, pixels: Bytes) -> None:
        self.targets = torch.from_numpy(split.labels)
        self._rows: Labels | None = split.rows
        self._pixels = pixels
        self._name = printable(os.path.basename(split.images))

    def path(self, index: int) -> str:
        row = index if self._rows is None else int(self._rows[index])
        return f"{self._name} image {row}"

    def _target_arrays(self) -> Iterable[npt.NDArray[Any]]:
        """Yield the class of each image, the shape of all images in the file, and the rows of the split's images.

        The latter two identify the images in place of file names.
        """
        yield self.targets.numpy()
        yield np.array(self._pixels.shape)
        if self._rows is not None:
            yield self._rows

    def load(self, index: int, size: int, channels: int) -> Tensor:
        return torch.from_numpy(self.load_many(np.array([index]), size, channels)[0])

    def load_many(self, indices: Labels, size: int, channels: int) -> Bytes:
        """Return gray images of the requested size, with the same values in all `channels`."""
        rows = indices if self._rows is None else self._rows[indices]
        fitted = fit(torch.from_numpy(self._pixels[rows][:, None]), size)
        pixels: Bytes = fitted.expand(-1, channels, -1, -1).numpy()
        return pixels

    def mapped_file(self, size: int, channels: int) -> tuple[Bytes, Labels | None] | None:
        """Return the images in the idx file and the row of each image, or None if another size or color is requested."""
        if channels != 1 or self._pixels.shape[1:] != (size, size):
            return None
        return self._pixels[:, None], self._rows
