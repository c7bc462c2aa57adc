"""Dataset format for images and edge drawings, in many folder layouts. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.maskfolder import select_splits
from engine.data.formats.shared.paired_folders import Candidate, Roles, find_candidates
from engine.data.formats.tree import Tree
from engine.data.splits import printable, spread_evenly
from engine.system.format import counted
from engine.tasks.edges.decoding import EDGE_AGREEMENT, AnnotatedEdges, read_edges

CLASSES = ("edge",)
_MATLAB = ".mat"
ROLES = Roles(
    words=frozenset({
        "groundtruth", "ground_truth", "edges", "edge", "edge_maps", "edgemaps", "edge_map", "edgemap", "boundaries",
        "boundary", "contours", "contour", "gt_edges",
    }),
    glued=("edges", "edge", "edge_maps", "boundaries", "contours"),
    endings=(_MATLAB, ".png", *sorted(EXTENSIONS - {".png"})),
    suffixes=("", "_edge", "_edges", "_gt", "_boundary", "-edge", "-edges"),
)  # fmt: skip
LAYOUT = (
    "Choose a folder with images and edges (or BSDS500's groundTruth), each optionally divided into train and val "
    "folders. Edges are images, white on black, or BSDS500's .mat files."
)
_SAMPLE = 8
"""Maximum number of edge files that are opened to detect the format of a dataset."""
_THIN_WIDTH = 5
"""Largest width in pixels for a line in an edge file to count as thin."""
_MAX_THICK_FRACTION = 0.2
"""Maximum fraction of the pixels in thin lines that remain after erosion by `_THIN_WIDTH // 2` pixels."""


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Split of image files and edge files. `edges[i]` contains the pixels that annotators have drawn for `files[i]`."""

    per_sample: ClassVar[tuple[str, ...]] = ("files", "edges")
    files: Sequence[str]
    edges: Sequence[str]
    is_drawn: bool = False

    @property
    def annotation_files(self) -> Sequence[str]:
        return self.edges


def detect(tree: Tree) -> list[Detection]:
    """Detect folders of edges. Each is a separate detection, and the most likely one comes first."""
    candidates = find_candidates(tree, ROLES)
    has_several = len(candidates) > 1
    detections = [_assess_candidate(each, each.variant if has_several else "") for each in candidates]
    return sorted(detections, key=lambda detection: -detection.confidence)


def _assess_candidate(candidate: Candidate, variant: str) -> Detection:
    """Return a format `Detection` for a folder of edge files. Its evidence comes from a sample of the files.

    `variant` is the name that distinguishes the folder from other folders of edge files.
    """
    pairs = candidate.pairs
    edge_files = [path for _, path in pairs.matched]
    sampled = [_try_read_edges(edge_files[index]) for index in spread_evenly(len(edge_files), _SAMPLE)]
    readable = [each for each in sampled if each is not None]
    lines = [mask for mask in map(_make_line_mask, readable) if mask.any()]
    is_matlab = edge_files[0].lower().endswith(_MATLAB)
    objections = []
    if not readable:
        objections.append("files of edges that can't be opened")
    elif not is_matlab and not lines:
        objections.append(f"no edges brighter than {100 * EDGE_AGREEMENT:.0f}% of white in the files that were opened")
    elif not is_matlab and 2 * sum(map(_is_thin, lines)) <= len(lines):
        objections.append("areas rather than thin lines in the files of edges")
    if 2 * len(pairs.matched) < pairs.file_count:
        objections.append(f"{counted(len(pairs.unmatched_files), 'file')} of edges without an image")
    evidence = (f"{counted(len(pairs.matched), 'image')} with edges in {printable(candidate.variant)}",)
    confidence = Confidence.CERTAIN if is_matlab else Confidence.LIKELY
    if objections:
        confidence = Confidence.WEAK
    return Detection(("edges",), confidence, evidence, tuple(objections), variant, source=candidate)


def _try_read_edges(path: str) -> AnnotatedEdges | None:
    """Read the edges from a file, or return None if that fails."""
    try:
        return read_edges(path)
    except Exception:  # a broken file may raise nearly anything in a decoder; loading it reports the error
        return None


def _make_line_mask(drawn: AnnotatedEdges) -> npt.NDArray[np.bool_]:
    """Return a mask of the edge pixels, bool [h, w]. Edges may be black on white or white on black."""
    return np.logical_xor(drawn.layers.any(0), drawn.is_inverted)


def _is_thin(layer: npt.NDArray[np.bool_]) -> bool:
    """Return True if most edge pixels in a drawing, bool [h, w], belong to thin lines."""
    from scipy.ndimage import binary_erosion

    inner = binary_erosion(layer, iterations=_THIN_WIDTH // 2)
    return bool(np.count_nonzero(inner) <= _MAX_THICK_FRACTION * np.count_nonzero(layer))


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the pairs of images and edge files in the folders of `detection`, by split.

    Unpaired files are reported as problems in the result. `kind`, the kind of annotations, is always "edges".
    """
    candidate: Candidate = detection.source
    problems = candidate.pairs.describe_unpaired("edges", "edges")
    splits = {
        split: EdgeSplit(pairs.images, pairs.files)
        for split, pairs in select_splits(candidate.splits, problems).items()
    }
    return Content(CLASSES, splits, problems)


FORMAT = Format(
    "edges",
    "Images with edges",
    ("edges",),
    LAYOUT,
    detect,
    read,
    open="engine.tasks.edges.samples:open_edges",
    inspect="engine.tasks.edges.inspection:inspect_edges",
    list_annotations="engine.tasks.edges.inspection:count_edge_pixels",
)
