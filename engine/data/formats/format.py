"""Interface of a dataset format: detection and reading of a folder. Torch-free.

A format is one module of this package, or of a task's folder, with a constant `FORMAT`. `registry.py` lists them,
compares what they detect and assembles datasets of what they read.
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
    """Strength of the evidence for a format."""

    WEAK = 1
    """The layout fits, but so does that of other datasets, or something speaks against it."""
    LIKELY = 2
    """Names of folders and files are those of the format."""
    CERTAIN = 3
    """Files that only this format has were opened and are valid."""


def certain_unless(against: Sequence[str]) -> Confidence:
    """Return the confidence of a layout that only one format has, if nothing speaks `against` it."""
    return Confidence.WEAK if against else Confidence.CERTAIN


@dataclass(frozen=True)
class Detection:
    """One way to read a folder, with the evidence for it.

    Attributes:
        kinds: Kinds of annotations that can be read (see `registry.KINDS`), the most detailed first. Empty if Footplate
            does not read the format; `remedy` then says how to convert it.
        confidence: Strength of the evidence.
        evidence: What was seen, as short noun phrases: "annotations.json with 6 images and 12 boxes".
        against: What speaks against this reading, in the same form.
        variant: Name that tells several readings by one format apart, such as a folder of masks.
        remedy: Advice for a format that is recognized but not read, or for a folder that something speaks against.
        obvious: True if nobody needs to see samples before training, although the confidence is not CERTAIN.
        source: Findings of `Format.detect` that `Format.read` continues from.
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
    """Annotations of a folder as a format reads them.

    Attributes:
        classes: Names in the order of their numbers, fit to print.
    splits: By "train", "val" and "test", or "" if the folder has no splits. The type depends on the kind: `FileSplit`
    for "classes", `LabelSplit` for "labels", a list of `BoxedImage` for "boxes", `InstanceSplit` for "instances",
            `MaskSplit` for "masks", a type of the task's for kinds that only one task has.
        problems: All errors and warnings.
        code: Meaning of the values of masks or of point labels; None to learn it from class tables and the masks.
        table_folders: Full paths of folders besides the dataset's that may have class tables for masks.
    """

    classes: tuple[str, ...]
    splits: Mapping[str, Any]
    problems: list[Problem] = field(default_factory=list)
    code: MaskCode | None = None
    table_folders: tuple[str, ...] = ()


def _read_nothing(tree: Tree, detection: Detection, kind: str) -> Content:
    raise NotImplementedError("the format is recognized, but not read")


@dataclass(frozen=True)
class Format:
    """A dataset format.

    Attributes:
        id: Value of the job's `format`, such as "coco".
        title: Name in messages: "COCO JSON".
        kinds: All kinds of annotations that folders of this format may have.
        layout: Sentence that tells users how such a folder is laid out.
    detect: Return how the folder can be read, best first; nothing if it is of another format. Judges by names and by
            a sample of small files; never opens every file.
        read: Return the annotations of one kind. Faults of single annotations are problems; raises OSError or
            UnusableFile only if nothing can be read. Formats without `kinds` need none.
        tasks: Ids of the tasks that take a plug-in's format whose kind is of its own.
        open: Open splits of a type that only this format has for training (see `open_splits.OPENERS`). Like the next
            two, a function or its path "module:name", which is imported when it is needed.
        inspect: Inspect such splits (see `inspector.INSPECTORS`).
        list_annotations: Return annotations of one sample of such splits (see `samples.ANNOTATIONS`).
        legend: Return the legend of the examples for the names of the classes.
    """

    id: str
    title: str
    kinds: tuple[str, ...]
    layout: str
    detect: Callable[[Tree], Sequence[Detection]]
    read: Callable[[Tree, Detection, str], Content] = _read_nothing
    tasks: tuple[str, ...] = ()
    open: Callable[..., Any] | str | None = None
    inspect: Callable[..., Any] | str | None = None
    list_annotations: Callable[..., Any] | str | None = None
    legend: Callable[[Sequence[str]], tuple[LegendEntry, ...]] | None = None


def resolve(function: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """Return a format's function, imported if it is given by its path."""
    return pkgutil.resolve_name(function) if isinstance(function, str) else function
