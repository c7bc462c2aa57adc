"""Images and classes in the idx files of MNIST. Validation files are optional. Torch-free."""

from __future__ import annotations

import gzip
import os
import zlib

import numpy as np
from msgspec.structs import astuple

from engine.contract.problems import Problem, errors
from engine.data.decoding.idx import Bytes, IdxError, IdxFiles, find_idx, read_idx
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.class_numbers import find_names
from engine.data.formats.tree import Tree
from engine.data.memory_limit import allow
from engine.data.splits import IdxSplit, dataset_error, printable
from engine.system.format import counted, listed
from engine.system.regular_files import UnusableFile, open_regular

MAX_LABELS = 20_000_000
"""Maximum number of labels in a file. Infinite MNIST, the largest dataset in this format, has eight million."""
BYTES_PER_LABEL = 128
"""Memory in bytes per label that is needed to divide a dataset into splits."""
LAYOUT = (
    "Choose a folder with MNIST's idx files: train-images-idx3-ubyte and train-labels-idx1-ubyte, and those of t10k for "
    "validation, unpacked or as .gz."
)


def detect(tree: Tree) -> list[Detection]:
    """Detect idx files that are named like those of MNIST. The detection is not certain if some of them are missing."""
    files = find_idx(tree.root)
    if files is None:
        return []
    present = [path for path in astuple(files) if path is not None]
    is_certain = not _report_missing(files) and all(map(_is_idx, present))
    confidence = Confidence.CERTAIN if is_certain else Confidence.LIKELY
    evidence = (listed(printable(os.path.basename(path)) for path in present),)
    return [Detection(("classes",), confidence, evidence, source=files)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their classes. Raises nothing: invalid files become problems.

    Without files for validation, all samples are in the split "".
    """
    files: IdxFiles = detection.source
    problems = _report_missing(files)
    train = _read_labels(files.train_labels, problems) if files.train_labels else None
    val = _read_labels(files.val_labels, problems) if files.val_labels else None
    if errors(problems) or train is None or files.train_images is None:
        return Content((), {}, problems)
    used_labels = np.unique(train if val is None else np.concatenate([train, val]))
    names = find_names(tree, ("",), used_labels.tolist())
    classes = tuple(printable(names.get(label, str(label))) for label in used_labels.tolist())
    training = IdxSplit(files.train_images, np.searchsorted(used_labels, train).astype(np.int64))
    if val is None or files.val_images is None:
        return Content(classes, {"": training}, problems)
    validation = IdxSplit(files.val_images, np.searchsorted(used_labels, val).astype(np.int64))
    return Content(classes, {"train": training, "val": validation}, problems)


def _report_missing(files: IdxFiles) -> list[Problem]:
    """Return an error for each missing file.

    Both files for training are required. Those for validation may be missing, but not only one of them.
    """
    problems = []
    has_validation = files.val_images is not None or files.val_labels is not None
    for path, is_required, content, name, alternative in (
        (files.train_images, True, "training images", "train-images-idx3-ubyte", ""),
        (files.train_labels, True, "training labels", "train-labels-idx1-ubyte", ""),
        (files.val_images, has_validation, "validation images", "t10k-images-idx3-ubyte", ", or remove its other half"),
        (files.val_labels, has_validation, "validation labels", "t10k-labels-idx1-ubyte", ", or remove its other half"),
    ):
        if path is None and is_required:
            message = f"The idx file with the {content} is missing."
            problems.append(dataset_error(message, f"Add {name} (or its .gz){alternative}."))
    return problems


def _is_idx(path: str) -> bool:
    """Return True if a file, gzipped or not, begins like an idx file of bytes."""
    try:
        with open_regular(path) as file, gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file as stream:
            return stream.read(3) == b"\0\0\x08"
    except (OSError, EOFError, zlib.error, UnusableFile):
        return False


def _read_labels(path: str, problems: list[Problem]) -> Bytes | None:
    """Return the labels in an idx file, uint8 [n], or None if they can't be used. The reason is added to `problems`."""
    labels = _read_or_explain(path, dimensions=1, problems=problems)
    if labels is None:
        return None
    name = printable(os.path.basename(path))
    if len(labels) > MAX_LABELS:
        message = f"{name} holds {len(labels):,} labels; at most {MAX_LABELS:,} are supported."
        problems.append(dataset_error(message, "Split the dataset."))
        return None
    allow(BYTES_PER_LABEL * len(labels))  # raises the memory limit
    if not len(labels):
        problems.append(dataset_error(f"{name} holds no labels.", "Download the file again."))
        return None
    return labels


def _read_or_explain(path: str, dimensions: int, problems: list[Problem]) -> Bytes | None:
    """Return the array in an idx file, which must have `dimensions` dimensions.

    If that fails, append the reason to `problems` and return None.
    """
    name = printable(os.path.basename(path))
    try:
        array = read_idx(path)
        if array.ndim == dimensions and 0 not in array.shape[1:]:
            return array
        shape = " x ".join(map(str, array.shape))
        expected = "a list" if dimensions == 1 else "images x rows x columns"
        raise IdxError(f"its array is {shape}, not {expected}")
    except IdxError as error:
        problem = dataset_error(f"{name} can't be used: {error}.", "Download the file again.")
    except UnusableFile as error:
        problem = dataset_error(f"{name} {error.reason}.", error.remedy)
    except PermissionError:
        problem = dataset_error(f"You have no permission to read {name}.", "Give yourself permission to read it.")
    except OSError as error:
        remedy = "Check the disk, or download the file again."
        problem = dataset_error(f"{name} can't be read: {error.strerror}.", remedy)
    problems.append(problem)
    return None


def open_idx_images(split: IdxSplit, problems: list[Problem]) -> Bytes | None:
    """Return the images in the idx file of a split, uint8 [N, rows, columns].

    If that fails, append the reason to `problems` and return None.
    """
    pixels = _read_or_explain(split.images, dimensions=3, problems=problems)
    if pixels is None:
        return None
    if split.rows is None and len(pixels) != len(split.labels):
        name = printable(os.path.basename(split.images))
        message = f"{name} holds {counted(len(pixels), 'image')} for {counted(len(split.labels), 'label')}."
        problems.append(dataset_error(message, "Use image and label files that belong together."))
        return None
    return pixels


FORMAT = Format("idx", "MNIST idx files", ("classes",), LAYOUT, detect, read)
