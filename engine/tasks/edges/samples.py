"""Images with edge maps as samples for a loader."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine.contract.images import Framing
from engine.data.datasets.images import LetterboxedImages, MaskedImages
from engine.data.datasets.open_splits import Splits, open_images
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import require_size
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.view import extend_edges
from engine.data.splits import RecognizedDataset
from engine.tasks.edges.decoding import OUTSIDE, AnnotatedEdges, letterbox_edges, read_edges
from engine.tasks.edges.formats import EdgeSplit


class ImagesWithEdges(LetterboxedImages):
    """Split of letterboxed images whose channels are followed by the two planes of `letterbox_edges`.

    The area around an image repeats its outermost pixels, since a black border would look like an edge.
    """

    framing: Framing = "continued"
    planes = 2
    outside = (OUTSIDE, 0)
    extends_edges = True
    cache_key = "edges, continued around"

    def __init__(self, split: EdgeSplit, folder: str) -> None:
        self.targets = torch.zeros(len(split.files), dtype=torch.int64)
        self.folder = folder
        self.files, self.companions = split.files, split.edges

    def _add_planes(self, index: int, image: Bytes, sides: tuple[int, int]) -> Bytes:
        """Append the two planes of edges to the letterboxed image with the index `index`.

        `sides` are the height and width of the original image. Raises Unfit if its edges have another size.
        """
        drawn = self._read_annotated(index).rotate_like_image(self.files[index], sides)
        require_size(drawn.sides, sides, message_start="its edges have")
        return np.concatenate([extend_edges(image, sides), letterbox_edges(drawn, image.shape[-1])])

    def _read_annotated(self, index: int) -> AnnotatedEdges:
        """Read the edges of the image with this index from its file."""
        return read_edges(self.companions[index])


class EdgesOfMasks(ImagesWithEdges):
    """Split of images whose edges are computed from masks.

    If the masks have two classes, the second one marks the edges, as in masks with drawn lines. If they have more
    classes, the edges are the borders between classes. Pixels without a class are not edges.
    """

    def __init__(self, images: MaskedImages, classes: int) -> None:
        """Use the files and masks of `images`. If there are two `classes`, the second one marks the edges."""
        self.targets = images.targets
        self.folder, self.files, self.companions = images.folder, images.files, images.companions
        self.cache_key = f"{ImagesWithEdges.cache_key}, of {classes} classes, {images.cache_key}"
        self.bands = images.bands
        self._images = images
        self._is_line_mask = classes == 2

    def _read_annotated(self, index: int) -> AnnotatedEdges:
        """Compute the edges of the image with this index from its mask, as the drawing of one annotator."""
        plane = self._images.class_plane(index)
        return AnnotatedEdges((plane == 1 if self._is_line_mask else _find_class_borders(plane))[None])


def open_edges(dataset: RecognizedDataset, folder: str) -> Splits:
    """Open the splits of a folder that was recognized as images with edges."""
    return open_images(dataset, lambda split: ImagesWithEdges(split, folder))


def _find_class_borders(plane: Bytes) -> npt.NDArray[np.bool_]:
    """Return a mask of the pixels whose right or lower neighbor has another class, given the classes, uint8 [h, w]."""
    is_border = np.zeros(plane.shape, bool)
    has_class = plane != NO_CLASS
    is_border[:, :-1] |= (plane[:, :-1] != plane[:, 1:]) & has_class[:, :-1] & has_class[:, 1:]
    is_border[:-1] |= (plane[:-1] != plane[1:]) & has_class[:-1] & has_class[1:]
    return is_border
