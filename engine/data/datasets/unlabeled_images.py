"""Image files without labels, for prediction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.contract.images import Preprocessing
from engine.data.datasets.images import ImageSet, UnreadableImage
from engine.data.decoding.images import decode, decode_letterboxed
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.decoding.tiff import Bands
from engine.data.decoding.view import extend_edges
from engine.data.splits import printable


class UnlabeledImages(ImageSet):
    """Images for prediction, which are made square in the same way as the training images. Their targets are zeros.

    `sides`, int32 [n, 2], holds the height and width of each image, or zeros until it is loaded. If images are made
    square by cropping, the values stay 0.
    """

    mirror = False

    def __init__(self, files: Sequence[str], preprocessing: Preprocessing) -> None:
        self.targets = torch.zeros(len(files), dtype=torch.int64)
        self.files = files
        self.framing = preprocessing.framing
        self.bands = get_bands(preprocessing)
        self.sides = np.zeros((len(files), 2), np.int32)

    def path(self, index: int) -> str:
        return printable(self.files[index])

    def load(self, index: int, size: int, channels: int) -> Tensor:
        """Return an image as uint8 [channels, size, size].

        Unless the framing is "crop", the image is letterboxed, and its original height and width are stored in `sides`.
        With the framing "continued", its outermost pixels then fill the square. Raises UnreadableImage.
        """
        try:
            content = read_image(self.files[index])
            if self.framing == "crop":
                return torch.from_numpy(decode(content, size, channels, self.bands))
            image, sides = decode_letterboxed(content, channels, size, self.bands)
            self.sides[index] = sides
            return torch.from_numpy(extend_edges(image, sides) if self.framing == "continued" else image)
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            raise UnreadableImage(self.path(index), describe_failure(error)) from error


def get_bands(preprocessing: Preprocessing) -> Bands | None:
    """Return a model's conversion of multi-band images to channels, or None if the model expects ordinary images."""
    if not preprocessing.low:
        return None
    return Bands(preprocessing.low, preprocessing.high, preprocessing.mean, preprocessing.std)
