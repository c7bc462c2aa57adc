"""Videos from MOT Challenge: one folder per video, with frames in img1 and boxes in gt/gt.txt. Torch-free.

A line has the frame, the object number, left, top, width, height, 1 if the box counts, the class and the visibility
(motchallenge.net, "Instructions"). Boxes that don't count become ignored regions.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from engine.contract.problems import Problem
from engine.data.decoding.reading import (
    MAX_TABLE_BYTES,
    Unfit,
    read_number,
    read_text,
    read_text_lines,
    refuse_unusable,
)
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.boxes import ANY_CLASS, Box, BoxedImage
from engine.data.formats.tree import Tree, split_of_folder
from engine.data.splits import count_sentence, dataset_error, dataset_warning, printable, warn_about
from engine.system.format import counted

CLASSES = (
    "pedestrian", "person on vehicle", "car", "bicycle", "motorbike", "non-motorized vehicle", "static person",
    "distractor", "occluder", "occluder on the ground", "occluder full", "reflection", "crowd",
)  # fmt: skip
"""Names of the classes in MOT Challenge, numbered from 1."""


class Row(NamedTuple):
    """Line in gt.txt: a box in a frame of the video.

    `label` is the class, counted from 1, or 0 if the file has no classes. `counts` is False for a region to ignore.
    """

    frame: int
    edges: tuple[float, float, float, float]
    label: int
    counts: bool


def detect(tree: Tree) -> list[Detection]:
    """Detect folders of videos, each with frames in img1 and boxes in gt/gt.txt."""
    videos = [folder for folder in tree.walk(depth=3) if _is_video(tree, folder)]
    if not videos:
        return []
    rows, _ = _read_boxes(tree.path(videos[0], "gt", "gt.txt"))
    if not rows:
        return []
    evidence = (f"{counted(len(videos), 'video')} with gt/gt.txt, such as {printable(videos[0]) or 'this'}",)
    return [Detection(("boxes",), Confidence.CERTAIN, evidence, source=videos)]


def _is_video(tree: Tree, folder: str) -> bool:
    """Return True if a folder contains gt/gt.txt and images in img1."""
    if not {"gt", "img1"} <= set(tree.folders(folder)):
        return False
    return "gt.txt" in tree.files(os.path.join(folder, "gt")) and tree.has_images(os.path.join(folder, "img1"))


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the frames of all videos with their boxes. Every video belongs to the split that its folder names."""
    problems: list[Problem] = []
    rows_by_video: dict[str, dict[int, list[Row]]] = {}  # by video and frame number
    faults: list[str] = []
    for video in detection.source:
        path = os.path.join(video, "gt", "gt.txt")
        rows, video_faults = _read_boxes(tree.path(path))
        faults += [f"{printable(path)}, {fault}" for fault in video_faults]
        for row in rows:
            rows_by_video.setdefault(video, {}).setdefault(row.frame, []).append(row)
    if faults:
        message = f"{count_sentence(faults, 'line')} that can't be read: {faults[0]}."
        problems.append(dataset_warning(message, "Such lines are left out."))
    used = {row.label for frames in rows_by_video.values() for rows in frames.values() for row in rows if row.counts}
    labels = {label: number for number, label in enumerate(sorted(used))}
    names = _read_names(tree, detection.source, problems)
    splits: dict[str, list[BoxedImage]] = {}
    for video in detection.source:
        images = _read_frames(tree, video, rows_by_video.get(video, {}), labels, problems)
        splits.setdefault(split_of_folder(video), []).extend(images)
    return Content(tuple(printable(names.get(label, f"class {label}")) for label in labels), splits, problems)


def _read_frames(
    tree: Tree, video: str, rows: dict[int, list[Row]], labels: dict[int, int], problems: list[Problem]
) -> list[BoxedImage]:
    """Return the frames of a video with their boxes, and append problems with missing frames to `problems`.

    `rows` are the boxes of each frame, and `labels` maps the classes in the file to class numbers.
    """
    folder = os.path.join(video, "img1")
    images: list[BoxedImage] = []
    numbers: set[int] = set()
    for name in tree.images(folder):
        digits = re.findall(r"\d+", os.path.splitext(name)[0])
        frame = int(digits[-1][-12:]) if digits else -1  # the last number in the name, which may be very long
        numbers.add(frame)
        boxes = [
            Box(*row.edges, labels[row.label] if row.counts else ANY_CLASS, not row.counts)
            for row in rows.get(frame, ())
        ]
        images.append(BoxedImage(tree.path(folder, name), boxes))
    missing = [str(frame) for frame in sorted(rows.keys() - numbers)]
    remedy = "Such frames are left out; add the images to img1."
    problems += warn_about(missing, "frame", f"of {printable(video) or 'the video'} with boxes but no image:", remedy)
    return images


def _read_names(tree: Tree, videos: list[str], problems: list[Problem]) -> dict[int, str]:
    """Return the class names, keyed by the class numbers in the files.

    They come from the files labels.txt that CVAT writes next to the boxes. Without such files, they are the classes of
    MOT Challenge if a video contains its file seqinfo.ini, and otherwise only "object". Faults are appended to
    `problems`.
    """
    lists: dict[str, list[str]] = {}
    for video in videos:
        path = os.path.join(video, "gt", "labels.txt")
        if os.path.isfile(tree.path(path)):
            lists[path] = read_text_lines(tree.path(path))
    if not lists:
        is_challenge = any("seqinfo.ini" in tree.files(video) for video in videos)
        return dict(enumerate(("object", *CLASSES))) if is_challenge else {0: "object"}
    (path, names), *others = lists.items()
    if differing := [other for other, listed in others if listed != names]:
        message = f"{printable(path)} and {printable(differing[0])} name different classes, or in another order."
        problems.append(dataset_error(message, "Number the classes of all videos alike."))
    return dict(enumerate(("object", *names)))


def _read_boxes(path: str) -> tuple[list[Row], list[str]]:
    """Return the boxes in a gt.txt file, and descriptions of the faults in its lines."""
    rows: list[Row] = []
    faults: list[str] = []
    text = read_text(path, MAX_TABLE_BYTES)
    with refuse_unusable(path):
        for number, line in enumerate(text.splitlines(), 1):
            tokens = line.replace(",", " ").split()
            if not tokens:
                continue
            try:
                if len(tokens) < 7:  # class and visibility may be missing
                    raise Unfit(f"line {number} has {counted(len(tokens), 'field')}; a box needs 9")
                frame, _, left, top, width, height, counts, *others = (read_number(token, number) for token in tokens)
            except Unfit as error:
                faults.append(str(error))
                continue
            # The first challenges have three world coordinates, which are -1, instead of class and visibility.
            label = int(others[0]) if len(others) == 2 else 0
            rows.append(Row(int(frame), (left, top, left + width, top + height), max(label, 0), counts > 0))
    return rows, faults


FORMAT = Format(
    "mot",
    "MOT Challenge videos",
    ("boxes",),
    "A folder for each video, with its frames in img1 and their boxes in gt/gt.txt.",
    detect,
    read,
)
