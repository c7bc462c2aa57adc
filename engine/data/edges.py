"""Folders of pictures and of the edges in them, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.found import Recognised, counted, first, shown, warn, wrong
from engine.data.imagefolder import SPLIT_NAMES, is_picture, subfolders
from engine.data.pairing import named
from engine.data.splitting import divided

CLASSES = ("edge",)
PICTURES = ("images", "image", "imgs", "img", "rgb", "inputs")
EDGES = ("groundtruth", "edges", "edge", "edge_maps", "edgemaps", "edge_map", "boundaries", "contours", "gt_edges")
_SUFFIXES = ("", "_edge", "_edges", "_gt", "_boundary", "-edge", "-edges")
"""What the name of a file of edges may have behind that of its picture."""
_WITHIN = ("", "data", "BSDS500/data", "edges")
"""Where in the folder the pictures and edges may lie: BSDS500 has them in data, BIPED in edges."""
LAYOUT = (
    "Give a folder with images and edges (or BSDS500's groundTruth), each with train and val folders if there are such; "
    "edges are pictures, white on black, or BSDS500's .mat files."
)


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Pictures and the edges in them as files: `edges[i]` tells which pixels of `files[i]` people drew. `alone` are pictures
    without edges."""

    files: Sequence[str]
    edges: Sequence[str]
    alone: Sequence[str] = ()
    made: bool = False

    def select(self, which: npt.NDArray[np.bool_], *, made: bool) -> EdgeSplit:
        """The pairs for which `which`, bool [n], is true; `made` where the folder has no such split."""
        rows = np.flatnonzero(which).tolist()
        alone = () if made else self.alone
        return EdgeSplit([self.files[row] for row in rows], [self.edges[row] for row in rows], alone, made=made)


def recognise_edges(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The pictures and edges in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = _pairs(folder, folders)
    if not pairs:
        return None
    problems: list[Problem] = []
    splits = {name: _joined(*pair, problems) for name, pair in pairs.items()}
    found = {name: split for name, split in splits.items() if split.files}
    if "val" not in found and "test" in found:
        problems.append(
            warn(
                "There is no validation split; the test pictures serve as one.",
                "Add one to keep the test pictures for a last, independent look.",
            )
        )
        found["val"] = found["test"]
    whole = found.get("train") or found.get("")
    if whole is None:
        message = (
            f"{shown(folder)} has folders of pictures and of edges, but none of them belong together for training."
        )
        return Recognised("edges", problems=(*problems, wrong(message, LAYOUT)))
    train, val = (whole, found["val"]) if "val" in found else divided(whole, folder, val_fraction, seed)
    if not len(val.files):
        problems.append(wrong("With so few pictures none can be kept for validation.", "Add some, or a val folder."))
    return Recognised("edges", CLASSES, train, val, tuple(problems))


def _pairs(folder: str, folders: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The folders of pictures and of their edges by split, or by "" where there are no splits."""
    for within in _WITHIN:
        place = os.path.join(folder, within) if within else folder
        if within and not os.path.isdir(place):
            continue
        inside = subfolders(place) if within else folders
        found = _beside(place, inside) or _by_split(place, inside)
        if found:
            return found
    return {}


def _beside(place: str, folders: Sequence[str]) -> dict[str, tuple[str, str]]:
    """images and edges, with or without folders of splits in both; of several folders of edges the first of `EDGES`."""
    pictures = named(folders, PICTURES)
    if pictures is None:
        return {}
    of_pictures = _splits_of(os.path.join(place, pictures))
    for name in EDGES:
        edges = named(folders, (name,))
        if edges is None or not _holds_edges(os.path.join(place, edges)):
            continue
        of_edges = _splits_of(os.path.join(place, edges))
        both = {split: (of_pictures[split], of_edges[split]) for split in of_pictures if split in of_edges}
        return both or {"": (os.path.join(place, pictures), os.path.join(place, edges))}
    return {}


def _by_split(place: str, folders: Sequence[str]) -> dict[str, tuple[str, str]]:
    """train and val, each with images and edges in it."""
    found = {}
    for split, within in _splits_of(place).items():
        pair = _beside(within, subfolders(within))
        if "" in pair:
            found[split] = pair[""]
    return found


def _splits_of(place: str) -> dict[str, str]:
    there = subfolders(place)
    found = {split: named(there, names) for split, names in SPLIT_NAMES.items()}
    return {split: os.path.join(place, name) for split, name in found.items() if name is not None}


def _is_edges(name: str) -> bool:
    return name.lower().endswith(".mat") or is_picture(name)


def _holds_edges(folder: str) -> bool:
    return any(_is_edges(name) for name in _files(folder))


def _files(folder: str) -> Iterator[str]:
    """The visible files in `folder` and below, relative to it."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in names if not name.startswith("."))


def _joined(pictures: str, edges: str, problems: list[Problem]) -> EdgeSplit:
    """Each picture with its edges, in the order of the pictures' names. Of several files of edges a .mat is taken."""
    drawn: dict[str, str] = {}
    for name in sorted(filter(_is_edges, _files(edges)), key=lambda name: (name.lower().endswith(".mat"), name)):
        drawn[os.path.splitext(name)[0]] = name
    files, of_edges, alone = [], [], []
    for name in sorted(filter(is_picture, _files(pictures))):
        stem = os.path.splitext(name)[0]
        found = next((drawn.pop(stem + suffix) for suffix in _SUFFIXES if stem + suffix in drawn), None)
        if found is None:
            alone.append(os.path.join(pictures, name))
        else:
            files.append(os.path.join(pictures, name))
            of_edges.append(os.path.join(edges, found))
    if alone:
        problems.append(
            warn(
                f"{counted(alone, 'picture')} in {shown(pictures)} without edges: {first(alone)}.",
                "They are left out; add their edges under the same names.",
            )
        )
    if drawn:
        left = sorted(drawn.values())
        problems.append(
            warn(
                f"{counted(left, 'file')} of edges in {shown(edges)} without a picture: {first(left)}.",
                "They are not used; give picture and edges the same name.",
            )
        )
    return EdgeSplit(files, of_edges, alone)
