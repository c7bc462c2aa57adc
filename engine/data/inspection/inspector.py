"""Looks a dataset folder through and reports what is there and what is wrong. Torch-free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from engine.contract.dataset import DatasetReport, Example, SplitReport, Unreadable
from engine.contract.legend import LegendEntry
from engine.contract.problems import Problem, errors
from engine.data.decoding.reading import quieten_pillow
from engine.data.decoding.tiff import channels_with, learn_from
from engine.data.drawing import frame_legend, mask_legend
from engine.data.formats.boxes import BoxSplit
from engine.data.formats.edges import EdgeSplit
from engine.data.formats.ignored_class import without_class
from engine.data.formats.instances import InstanceSplit
from engine.data.formats.labels_table import LabelSplit
from engine.data.formats.registry import FORMATS, IMAGES_BY_CLASS, recognise, why_not
from engine.data.formats.splitting import count
from engine.data.inspection.any_files import look_through_any
from engine.data.inspection.base import LeaveOut, Looked, Progress
from engine.data.inspection.boxes import look_through_boxes
from engine.data.inspection.contents import Contents
from engine.data.inspection.doubts import find_doubts
from engine.data.inspection.edges import look_through_edges
from engine.data.inspection.idx import look_through_idx
from engine.data.inspection.image_sizes import image_sizes
from engine.data.inspection.imagefolder import look_through_files
from engine.data.inspection.imbalance import imbalance
from engine.data.inspection.instance_numbers import told_of_numbers
from engine.data.inspection.instances import look_through_instances
from engine.data.inspection.labels_table import look_through_labels
from engine.data.inspection.leaks import leaks
from engine.data.inspection.masks import look_through_masks
from engine.data.inspection.pixels import pixel_problems
from engine.data.inspection.points import look_through_points
from engine.data.inspection.readings import candidate_readings
from engine.data.inspection.samples import list_samples
from engine.data.point_drawing import point_legend
from engine.data.splits import AnySplit, FileSplit, IdxSplit, MaskSplit, PointSplit, Recognised, shown, warn
from engine.system.plain_text import brief
from engine.system.regular_files import UnusableFile

UNREADABLE_SHOWN = 1000

LOOKS: dict[type, Callable[[Recognised, Progress, LeaveOut, int], Looked]] = {
    FileSplit: look_through_files,
    MaskSplit: look_through_masks,
    BoxSplit: look_through_boxes,
    InstanceSplit: look_through_instances,
    EdgeSplit: look_through_edges,
    LabelSplit: look_through_labels,
    IdxSplit: look_through_idx,
    PointSplit: look_through_points,
    AnySplit: look_through_any,
}
"""What looks a recognised folder through, with so many threads, by the type of its splits."""


@dataclass
class _LeftOut:
    """The files that cannot be used."""

    folder: str
    unreadable: list[Unreadable] = field(default_factory=list)
    unreadable_count: int = 0

    def leave_out(self, path: str, reason: str) -> None:
        self.unreadable_count += 1
        if len(self.unreadable) < UNREADABLE_SHOWN:
            self.unreadable.append(Unreadable(shown(os.path.relpath(path, self.folder)), reason))

    def judged(self) -> list[Problem]:
        """The problem of the unreadable files."""
        count = self.unreadable_count
        if not count:
            return []
        named = "; ".join(f"{each.path}: {each.reason}" for each in self.unreadable[:3])
        more = f"; and {count - 3:,} more" if count > 3 else ""
        files = "1 file is" if count == 1 else f"{count:,} files are"
        message = f"{files} left out ({named}{more})."
        return [warn(message, "Repair or remove them; training continues without them.")]


def inspect(
    folder: str,
    *,
    val_fraction: float,
    seed: int,
    progress: Progress,
    kinds: Sequence[str] = IMAGES_BY_CLASS,
    format: str = "",
    samples: int = 0,
    ignored: int | None = None,
    threads: int | None = None,
) -> DatasetReport:
    """Inspect `folder`, whose annotations are to be of one of `kinds`; never raises for what is wrong with it.

    Args:
        folder: Folder of the dataset.
        val_fraction: Share of the images held out if there is no validation split.
        seed: Seed of that draw.
        progress: Called with the number of inspected images and of all.
        kinds: Kinds of annotations that the task takes.
        format: Name of the reading that the user chose; "" to go by the evidence.
        samples: Number of samples to list with their annotations.
        ignored: Value of masks or labels that is of no class; None for the folder's own.
        threads: Number of threads; None for up to four.
    """
    begun = time.perf_counter()
    quieten_pillow()
    folder = os.path.abspath(os.path.expanduser(folder))
    progress(0, 0)
    try:
        report = _inspected(
            folder,
            val_fraction=val_fraction,
            seed=seed,
            progress=progress,
            kinds=kinds,
            format=format,
            samples=samples,
            ignored=ignored,
            threads=threads,
        )
    except (UnusableFile, MemoryError) as error:
        report = DatasetReport(folder=shown(folder), format="", problems=(why_not(error, folder),))
    return msgspec.structs.replace(brief(report), seconds=time.perf_counter() - begun)


def _inspected(
    folder: str,
    *,
    val_fraction: float,
    seed: int,
    progress: Progress,
    kinds: Sequence[str],
    format: str,
    samples: int,
    ignored: int | None,
    threads: int | None,
) -> DatasetReport:
    found = without_class(
        recognise(folder, val_fraction=val_fraction, seed=seed, kinds=kinds, format=format), folder, ignored
    )
    left_out = _LeftOut(folder)
    numbered = told_of_numbers(found.train.masks) if kinds[0] == "masks" and isinstance(found.train, MaskSplit) else []
    looked = Looked()
    if not errors(found.problems) and found.train is not None:
        look = FORMATS[found.format.partition(":")[0]].inspect or LOOKS[type(found.train)]
        looked = look(found, progress, left_out.leave_out, threads or min(4, os.cpu_count() or 1))
        if numbered:  # how rare the classes are says nothing where they are none
            looked.problems = errors(looked.problems)
        looked.problems += [problem for split in looked.splits[:1] for problem in imbalance(split)]
        files = () if isinstance(found.train, AnySplit | PointSplit) else getattr(found.train, "files", ())
        learnt = learn_from(folder, files)
        looked.channels = looked.channels if learnt is None else channels_with(learnt.bands, looked.channels)
        looked.problems += pixel_problems(files, looked.channels or 3, learnt)
        if not errors(looked.problems):
            contents = Contents()
            looked.problems += leaks(found, folder, contents)
            looked.problems += find_doubts(found, folder, contents, has_bands=learnt is not None)
        looked.splits += _test_split(found)
    looked.problems[:0] = [*numbered, *found.problems]
    looked.problems += left_out.judged()
    return DatasetReport(
        folder=shown(folder),
        format=found.format,
        kind=found.kind,
        title=found.title,
        evidence=found.evidence,
        certain=found.certain,
        other=found.other,
        classes=found.classes,
        splits=tuple(looked.splits),
        channels=looked.channels or 3,
        unreadable=tuple(left_out.unreadable),
        unreadable_count=left_out.unreadable_count,
        examples=tuple(looked.examples),
        legend=_legend(found),
        mask_values=looked.mask_values,
        sizes=image_sizes(getattr(found.train, "files", ())),
        readings=()
        if found.format
        else candidate_readings(folder, val_fraction=val_fraction, seed=seed, draw=_draw_examples),
        samples=tuple(list_samples(found, folder, samples)) if samples and not errors(found.problems) else (),
        problems=tuple(looked.problems),
    )


def _draw_examples(found: Recognised) -> tuple[Example, ...]:
    look = FORMATS[found.format.partition(":")[0]].inspect or LOOKS[type(found.train)]
    return tuple(look(found, lambda _done, _total: None, lambda _path, _reason: None, 1).examples)


def _test_split(found: Recognised) -> list[SplitReport]:
    """Return how many samples the test split has, which is not inspected further."""
    if found.test is None or found.test is found.val:
        return []
    numbers = getattr(found.test, "labels", None) if found.kind == "classes" else None
    if numbers is None:
        return [SplitReport("test", {}, total=count(found.test))]
    counts = np.bincount(numbers, minlength=len(found.classes)).tolist()
    return [SplitReport("test", dict(zip(found.classes, counts, strict=True)))]


def _legend(found: Recognised) -> tuple[LegendEntry, ...]:
    """The classes that the colours in the examples stand for; of instances each has its own colour."""
    if isinstance(found.train, MaskSplit):
        return mask_legend(found.classes)
    if isinstance(found.train, PointSplit) and found.classes:
        return point_legend(found.classes)
    return frame_legend(found.classes) if isinstance(found.train, BoxSplit) else ()
