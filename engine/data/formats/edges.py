"""Folders of images and of the edges in them, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS
from engine.data.formats.folders import subfolders
from engine.data.formats.pairing import Kind, Pair, find_pairs, join
from engine.data.formats.splitting import divide
from engine.data.splits import Recognised, counted, first, shown, warn

CLASSES = ("edge",)
KIND = Kind(
    folders=("groundtruth", "edges", "edge", "edge_maps", "edgemaps", "edge_map", "boundaries", "contours", "gt_edges"),
    endings=(*sorted(EXTENSIONS), ".mat"),
    suffixes=("", "_edge", "_edges", "_gt", "_boundary", "-edge", "-edges"),
    deep=True,
)
_WITHIN = ("", "data", "BSDS500/data", "edges")
"""Where in the folder the images and edges may lie: BSDS500 has them in data, BIPED in edges."""
LAYOUT = (
    "Choose a folder with images and edges (or BSDS500's groundTruth), each optionally divided into train and val "
    "folders. Edges are images, white on black, or BSDS500's .mat files."
)


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Images and the edges in them as files: `edges[i]` holds the pixels of `files[i]` that annotators drew."""

    files: Sequence[str]
    edges: Sequence[str]
    made: bool = False

    def select(self, which: npt.NDArray[np.bool_], *, made: bool) -> EdgeSplit:
        """The pairs for which `which`, bool [n], is true; `made` where the folder has no such split."""
        rows = np.flatnonzero(which).tolist()
        return EdgeSplit([self.files[row] for row in rows], [self.edges[row] for row in rows], made)


def recognise_edges(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The images and edges in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = _pairs(folder, folders)
    if not pairs:
        return None
    problems: list[Problem] = []
    splits = {name: _joined(pair, problems) for name, pair in pairs.items()}
    nothing = f"{shown(folder)} has folders of images and of edges, but no training image has edges."
    divided = divide(splits, folder, problems, val_fraction=val_fraction, seed=seed, layout=LAYOUT, nothing=nothing)
    if divided is None:
        return Recognised("edges", problems=tuple(problems))
    train, val, test = divided
    return Recognised("edges", CLASSES, train, val, tuple(problems), test=test)


def _pairs(folder: str, folders: Sequence[str]) -> dict[str, Pair]:
    """The folders of images and of their edges by split, or by "" where there are no splits."""
    for within in _WITHIN:
        where = os.path.join(folder, within) if within else folder
        if not within or os.path.isdir(where):
            found = find_pairs(where, subfolders(where) if within else folders, KIND)
            if found:
                return found
    return {}


def _joined(pair: Pair, problems: list[Problem]) -> EdgeSplit:
    """Each image with its edges, in the order of the images' names. Adds what has no counterpart to `problems`."""
    joined = join(pair, KIND)
    if joined.alone:
        problems.append(
            warn(
                f"{counted(joined.alone, 'image')} in {shown(pair.images)} without edges: {first(joined.alone)}.",
                "They are left out; add their edges under the same names.",
            )
        )
    if joined.spare:
        problems.append(
            warn(
                f"{counted(joined.spare, 'file')} of edges in {shown(pair.annotations)} without an image: "
                f"{first(joined.spare)}.",
                "They are not used; give image and edges the same name.",
            )
        )
    return EdgeSplit([image for image, _ in joined.both], [edges for _, edges in joined.both])
