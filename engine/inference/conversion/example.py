"""Example sample for trying the converted model."""

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
    """Write a validation sample in the script's input format, without metadata such as a photograph's location.

    Returns None if the dataset can't be read. Raises OSError.
    """
    if samples.val is None:
        return None
    if isinstance(samples.val, ImageSet) and samples.val.files and samples.val.bands is None:
        with suppress(Exception):  # otherwise, the preprocessed sample is used
            pixels = decode_pixels(read_image(samples.val.files[0]), model.channels)
            upright = Image.fromarray(pixels[:, :, 0] if model.channels == 1 else pixels)
            upright.thumbnail((LONG_SIDE, LONG_SIDE))
            return _write_png(folder, np.asarray(upright))
    sample = export.to_input(samples.inputs[:1])[0].numpy()
    if export.input_name == "images" and sample.shape[2] in (1, 3):
        return _write_png(folder, sample[..., 0] if sample.shape[2] == 1 else sample)
    path = folder / f"{NAME}.npy"
    np.save(path, sample)
    return path


def _write_png(folder: Path, pixels: np.ndarray) -> Path:
    path = folder / f"{NAME}.png"
    Image.fromarray(pixels).save(path)
    return path
