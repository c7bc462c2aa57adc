"""A sample to try the model on, as it is handed over beside it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image

from engine.data.datasets.images import ImageSet
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import read_image
from engine.inference.conversion.comparison import Samples
from engine.inference.conversion.exportable import Exportable
from engine.inference.trained_model import TrainedModel

LONG_SIDE = 1024
NAME = "example"


def write_example(folder: Path, model: TrainedModel, samples: Samples, export: Exportable) -> Path | None:
    """A validation sample as the script takes it, without what its file tells beside the pixels (such as where a
    photograph was taken); None where the dataset is gone. Raises OSError.
    """
    if samples.val is None:
        return None
    if isinstance(samples.val, ImageSet) and samples.val.files and samples.val.bands is None:
        with suppress(Exception):  # the sample as the model sees it is left
            pixels = decode_pixels(read_image(samples.val.files[0]), model.channels)
            upright = Image.fromarray(pixels[:, :, 0] if model.channels == 1 else pixels)
            upright.thumbnail((LONG_SIDE, LONG_SIDE))
            return _image(folder, np.asarray(upright))
    given = export.given(samples.inputs[:1])[0].numpy()
    if export.input_name == "images" and given.shape[2] in (1, 3):
        return _image(folder, given[..., 0] if given.shape[2] == 1 else given)
    path = folder / f"{NAME}.npy"
    np.save(path, given)
    return path


def _image(folder: Path, pixels: np.ndarray) -> Path:
    path = folder / f"{NAME}.png"
    Image.fromarray(pixels).save(path)
    return path
