"""Interface for dataset formats, which detect and read dataset folders. Torch-free.

A format is one module in this package or in the folder of a task, with a constant `FORMAT`. `registry.py` lists the
formats, compares their detections, and assembles datasets from the content that they read.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from engine.contract.images import LegendEntry
from engine.contract.problems import Problem
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode


class Confidence(IntEnum):
    """Strength of the evidence that a folder has a format."""

    WEAK = 1
    """The layout fits, but other datasets also have it, or there is evidence against the format."""
    LIKELY = 2
    """The names of folders and files are typical for the format."""
    CERTAIN = 3
    """Files that exist only in this format were opened and are valid."""


@dataclass(frozen=True)
class Detection:
    """Interpretation of a folder as a certain format, with the evidence for it.

    Attributes:
        kinds: Kinds of annotations that can be read (see `registry.KINDS`), the most detailed first. Empty if Footplate
            does not support the format. `remedy` then explains how to convert it.
        confidence: Strength of the evidence.
        evidence: Evidence for this interpretation, as short noun phrases: "annotations.json with 6 images and 12
            boxes".
        against: Evidence against this interpretation, in the same form.
        variant: Name that distinguishes several detections of one format, such as the name of a folder of masks.
        remedy: Advice for an unsupported format, or for a folder with evidence against the format.
        obvious: True if users need not check samples before training although the confidence is not CERTAIN.
        source: Data that `Format.detect` passes on to `Format.read`.
    """

    kinds: tuple[str, ...]
    confidence: Confidence
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    variant: str = ""
    remedy: str = ""
    source: Any = None
    obvious: bool = False


@dataclass
class Content:
    """Annotations that a format has read from a folder.

    Attributes:
        classes: Printable class names, ordered by class number.
        splits: Samples by "train", "val" and "test", or by "" if the folder has no splits. The type depends on the
            kind: `FileSplit` for "classes", `LabelSplit` for "labels", a list of `BoxedImage` for "boxes",
            `InstanceSplit` for "instances", `MaskSplit` for "masks", and the task's own type for kinds that only one
            task has.
        problems: All errors and warnings.
        code: Mapping from values in masks or point labels to classes, or None to infer it from class tables and masks.
        table_folders: Full paths of folders, in addition to the dataset folder, that may have class tables for masks.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Any]
    problems: list[Problem] = field(default_factory=list)
    code: MaskCode | None = None
    table_folders: tuple[str, ...] = ()


def _refuse_to_read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Raise NotImplementedError, for formats without kinds of annotations. They are only recognized."""
    raise NotImplementedError("the format is recognized, but not read")


@dataclass(frozen=True)
class Format:
    """Dataset format.

    Attributes:
        id: Value of the job's `format`, such as "coco".
        title: Name in messages: "COCO JSON".
        kinds: All kinds of annotations that this format supports.
        layout: Sentence that describes the folder layout to users.
        detect: Function that returns the possible interpretations of a folder, best first, or none if the folder has
            another format. It examines names and a sample of small files, and never opens every file.
        read: Function that returns the annotations of one kind. It reports faults in single annotations as problems,
            and raises OSError or UnusableFile only if nothing can be read. Formats without `kinds` don't need it.
        tasks: Ids of the tasks that accept the format, if it comes from a plug-in and has a kind of annotations of its
            own.
        open: Function that opens the splits for training if their type exists only in this format (see
            `open_splits.OPENERS`). This function and the next two may be given as a path "module:name". They are then
            imported on first use.
        inspect: Function that inspects such splits (see `inspector.INSPECTORS`).
        list_annotations: Function that returns the annotations of one sample from such splits (see
            `samples.ANNOTATIONS`).
        legend: Function that returns the legend for example images, given the class names.
    """

    id: str
    title: str
    kinds: tuple[str, ...]
    layout: str
    detect: Callable[[Tree], Sequence[Detection]]
    read: Callable[[Tree, Detection, str], Content] = _refuse_to_read
    tasks: tuple[str, ...] = ()
    open: Callable[..., Any] | str | None = None
    inspect: Callable[..., Any] | str | None = None
    list_annotations: Callable[..., Any] | str | None = None
    legend: Callable[[Sequence[str]], tuple[LegendEntry, ...]] | None = None


def resolve(function: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """Return a function that a format declares, or None if it declares none.

    If the function is given as a path "module:name", it is imported.
    """
    return pkgutil.resolve_name(function) if isinstance(function, str) else function
