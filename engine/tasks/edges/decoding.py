"""Read the edges that annotators have drawn, and transform them in the same way as their image. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from engine.data.decoding.idx import Bytes
from engine.data.decoding.orientation import turn_upright_like_image
from engine.data.decoding.reading import MAX_PIXELS, Unfit, decode_header, read_image
from engine.data.decoding.view import find_letterbox
from engine.tasks.edges.matlab import check_mat

Planes = npt.NDArray[np.bool_]
_Kind = TypeVar("_Kind", np.bool_, np.uint8)

OUTSIDE = 255
"""Value in a plane of annotator fractions for pixels outside the image.

These pixels count neither in the loss nor in the metrics.
"""
FULL = 254
"""Value in a plane of annotator fractions for a pixel that all annotators have drawn."""
EDGE_AGREEMENT = 0.3
"""Fraction of annotators above which a pixel is an edge (gamma in He et al. 2019, section 4.2, and in Liu et al. 2017).

It is also the threshold for binarizing an image of edges, which counts as the drawing of one annotator.
"""
MAX_ANNOTATORS = 8
"""Maximum number of annotators per image whose drawings are evaluated separately, with one bit for each.

The fraction of annotators who drew a pixel includes all annotators.
"""
_MAX_EDGE_FRACTION = 0.5
"""Fraction of edge pixels above which an image is assumed to show black edges on white."""


@dataclass(frozen=True, eq=False)
class AnnotatedEdges:
    """Edges that annotators have drawn in one image.

    `layers` are bool [k, h, w], one for each annotator. `agreement` is the fraction of annotators who drew each pixel,
    uint8 [h, w] from 0 to 255, or None if it is the mean of the layers.
    """

    layers: Planes
    agreement: Bytes | None = None

    def rotate_like_image(self, path: str, sides: tuple[int, int]) -> AnnotatedEdges:
        """Return the edges, rotated by the EXIF orientation of the image at `path` if they were drawn without it.

        `sides` are the height and width of the upright image.
        """
        agreement = None if self.agreement is None else turn_upright_like_image(self.agreement, path, sides)
        return AnnotatedEdges(turn_upright_like_image(self.layers, path, sides), agreement)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the layers in pixels."""
        height, width = self.layers.shape[1:]
        return height, width

    @property
    def edge_fraction(self) -> float:
        """Fraction of pixels that at least one annotator has drawn."""
        return float(self.layers.any(0).mean())

    @property
    def is_inverted(self) -> bool:
        """True if so many pixels are edges that edges and background are probably swapped."""
        return self.edge_fraction > _MAX_EDGE_FRACTION


def read_edges(path: str) -> AnnotatedEdges:
    """Read the edges from a BSDS500 file (.mat) or from an image, white on black.

    Raises Unfit, and any exception of the decoder.
    """
    content = read_image(path)
    return _read_matlab(content) if path.lower().endswith(".mat") else _read_image(content)


def _read_matlab(content: bytes) -> AnnotatedEdges:
    """Read the edges from the cell array `groundTruth` of a BSDS500 file.

    Each cell is a struct for one annotator, whose field `Boundaries` [h, w] holds the edges.
    """
    from scipy.io import loadmat
    from scipy.sparse import issparse

    check_mat(content)
    cells = loadmat(BytesIO(content), variable_names=["groundTruth"]).get("groundTruth")
    if cells is None or cells.dtype != object or not cells.size:
        raise Unfit("it has no groundTruth, unlike BSDS500's files")
    layers = []
    for cell in cells.ravel():
        if cell.dtype.names is None or "Boundaries" not in cell.dtype.names:
            raise Unfit("its groundTruth has no Boundaries")
        layer = cell["Boundaries"].ravel()[0]
        if len(cells.ravel()) * math.prod(layer.shape) > MAX_PIXELS:
            raise Unfit(f"its annotations are too large ({' x '.join(map(str, layer.shape))} pixels)")
        layers.append(np.asarray(layer.astype(bool).toarray() if issparse(layer) else layer) > 0)
    if len({layer.shape for layer in layers}) > 1 or layers[0].ndim != 2:
        raise Unfit("its annotations have different sizes")
    return AnnotatedEdges(np.stack(layers))


def _read_image(content: bytes) -> AnnotatedEdges:
    """Read the edges from an image whose brightness is the fraction of annotators who drew a pixel.

    Raises Unfit for 16-bit images.
    """
    with decode_header(content) as image:
        if image.mode.startswith("I"):
            raise Unfit("images of edges must have 8 bits, and this one has more")
        levels = np.asarray(image.convert("L"))
    return AnnotatedEdges((levels > EDGE_AGREEMENT * 255)[None], levels)


def letterbox_edges(drawn: AnnotatedEdges, size: int) -> Bytes:
    """Convert edges to two planes that match a letterboxed image, uint8 [2, size, size].

    The first plane holds the fraction of annotators who drew each pixel, from 0 to `FULL`, and `OUTSIDE` around the
    image. In the second plane, a bit for each of the first `MAX_ANNOTATORS` annotators is set if that annotator drew
    the pixel. The lines in this plane are thinned. If the image shrinks, a pixel is an edge if any of the pixels merged
    into it is an edge, so that no line is lost or interrupted.
    """
    layers = _resize_planes(drawn.layers, size)
    if drawn.agreement is None:
        agreement = np.rint(layers.mean(0) * FULL).astype(np.uint8)
    else:
        agreement = np.rint(_resize_planes(drawn.agreement[None], size)[0] * (FULL / 255)).astype(np.uint8)
    annotator_bits = np.zeros(agreement.shape, np.uint8)
    for number, layer in enumerate(layers[:MAX_ANNOTATORS]):
        annotator_bits |= thin_lines(layer).astype(np.uint8) << number
    top, left, resized_height, resized_width = find_letterbox(*drawn.sides, size)
    planes = np.zeros((2, size, size), np.uint8)
    planes[0] = OUTSIDE
    planes[:, top : top + resized_height, left : left + resized_width] = agreement, annotator_bits
    return planes


def _resize_planes(layers: npt.NDArray[_Kind], size: int) -> npt.NDArray[_Kind]:
    """Resize planes [k, h, w] to the size that the image has inside a square of `size` pixels.

    If several pixels are merged, their maximum is used.
    """
    height, width = layers.shape[1:]
    _, _, resized_height, resized_width = find_letterbox(height, width, size)
    if resized_height >= height and resized_width >= width:
        # The nearest row and column of the center of each new pixel.
        rows = (np.arange(resized_height) * 2 + 1) * height // (2 * resized_height)
        columns = (np.arange(resized_width) * 2 + 1) * width // (2 * resized_width)
        return layers[:, rows[:, None], columns]
    # First row and column of each group of merged pixels.
    rows = -(-np.arange(resized_height) * height // resized_height)
    columns = -(-np.arange(resized_width) * width // resized_width)
    merged: npt.NDArray[_Kind] = np.maximum.reduceat(np.maximum.reduceat(layers, rows, axis=1), columns, axis=2)
    return merged


def thin_lines(plane: Planes) -> Planes:
    """Thin lines to a width of one pixel, bool [h, w], and keep them connected.

    This is the parallel algorithm by Guo and Hall (Communications of the ACM 32, 1989, algorithm A1), as in "thin" of
    Matlab's `bwmorph`, which the BSDS500 benchmark uses.
    """
    is_line = np.pad(plane.astype(bool), 1)
    rows, columns = np.nonzero(is_line)
    changed = True
    while changed:
        changed = False
        for half in (0, 4):  # see `_select_removable`
            neighbors = [is_line[rows + down, columns + right] for down, right in _NEIGHBORS]
            removed = _select_removable(neighbors, half)
            if removed.any():
                is_line[rows[removed], columns[removed]] = False
                rows, columns = rows[~removed], columns[~removed]
                changed = True
    return is_line[1:-1, 1:-1]


_NEIGHBORS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
"""Offsets of a pixel's neighbors x1 to x8, counterclockwise from the right one."""


def _select_removable(neighbors: list[Planes], half: int) -> Planes:
    """Return a mask of the line pixels that half an iteration of Guo and Hall's thinning removes (1989, algorithm A1).

    `neighbors` hold the eight neighbors of each pixel in the order of `_NEIGHBORS`. `half` is 0 for the first half of
    an iteration, which removes pixels at the right and upper edges of lines, and 4 for the second half.
    """
    x = [*neighbors, neighbors[0]]
    crossings = np.sum([~x[i] & (x[i + 1] | x[i + 2]) for i in (0, 2, 4, 6)], axis=0)
    odd_pairs = np.sum([x[i] | x[i + 1] for i in (0, 2, 4, 6)], axis=0)
    even_pairs = np.sum([x[i + 1] | x[i + 2] for i in (0, 2, 4, 6)], axis=0)
    line_neighbors = np.minimum(odd_pairs, even_pairs)
    is_protected = (x[half + 1] | x[half + 2] | ~x[(half + 7) % 8]) & x[half]
    # One crossing: the removal splits no line (condition G1). Two or three neighbors: it shortens no line (G2).
    # Each half protects one side, so that a line two pixels wide does not vanish (G3).
    removable: Planes = (crossings == 1) & (line_neighbors >= 2) & (line_neighbors <= 3) & ~is_protected
    return removable
