"""Folders of images with boxes, in whatever way they are written down. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.data.formats.boxes import Annotations, BoxFaults, gather
from engine.data.formats.rotated import RotationReport, rotate_boxes
from engine.data.formats.splitting import divide
from engine.data.splits import Recognised, shown, wrong

LAYOUT = (
    "Choose a folder with images and their boxes: PASCAL VOC's XML or the text files of YOLO or "
    "KITTI, including exports of ArcGIS and Roboflow."
)


READERS: tuple[Callable[[str, Sequence[str]], Annotations | None], ...] = ()
"""In the order in which they are tried; each gives None where a folder is not of its kind."""


def recognise_boxes(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The images and boxes in `folder`, whose folders are `folders`; None where it is not of that kind."""
    found = next((each for read in READERS if (each := read(folder, folders)) is not None), None)
    if found is None:
        return None
    problems = list(found.problems)
    faults, rotations = BoxFaults(), RotationReport()
    upright = {name: rotate_boxes(each, rotations) for name, each in found.splits.items() if each}
    splits = {name: gather(each, len(found.classes), faults) for name, each in upright.items()}
    problems += [*rotations.problems("boxes"), *faults.problems()]
    if not found.classes:
        problems.append(wrong(f"{shown(folder)} holds annotations, but none of them has a box.", LAYOUT))
        return Recognised("boxes", problems=tuple(problems))
    divided = divide(splits, folder, problems, val_fraction=val_fraction, seed=seed, layout=LAYOUT)
    train, val, test = divided or (None, None, None)
    return Recognised("boxes", found.classes, train, val, tuple(problems), test=test)
