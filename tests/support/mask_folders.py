"""Builders of folders with images and masks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from engine.contract.dataset import DatasetReport
from engine.data.formats.registry import recognize
from engine.data.inspection.inspector import inspect
from engine.data.splits import MaskCode, RecognizedDataset

SIDE = 32


def make_striped_mask(*values: int) -> np.ndarray:
    """Return a mask, uint8 [32, 32], with a vertical stripe for each of `values`."""
    columns = np.arange(SIDE) * len(values) // SIDE
    return np.broadcast_to(np.array(values)[columns], (SIDE, SIDE)).astype(np.uint8)


def color_mask(mask: np.ndarray, colors: dict[int, int]) -> np.ndarray:
    """Convert a mask to colors, uint8 [h, w, 3]. `colors` maps a value to 0xRRGGBB."""
    found = np.zeros((*mask.shape, 3), np.uint8)
    for value, color in colors.items():
        found[mask == value] = (color >> 16, color >> 8 & 0xFF, color & 0xFF)
    return found


def with_palette(mask: np.ndarray, *colors: int) -> Image.Image:
    image = Image.fromarray(mask, "P")
    image.putpalette([band for color in colors for band in (color >> 16, color >> 8 & 0xFF, color & 0xFF)])
    return image


def encode_mask(mask: Any, ending: str, **options: Any) -> bytes:
    """Encode a mask in the format of the suffix `ending`, and return the bytes of the file.

    The suffixes "npy" and "tif" support any dtype. `options` are passed to the encoder.
    """
    stream = io.BytesIO()
    if ending == "npy":
        np.save(stream, mask)
    elif ending == "tif" and isinstance(mask, np.ndarray):
        tifffile.imwrite(stream, mask, **options)
    else:
        image = mask if isinstance(mask, Image.Image) else Image.fromarray(mask)
        kind = {"jpg": "JPEG", "tif": "TIFF"}.get(ending, ending.upper())
        image.save(stream, kind, **options)
    return stream.getvalue()


def make_folder(folder: Path, masks: Sequence[Any], ending: str = "png", **options: Any) -> Path:
    """Write gray images to images/N.png and masks to masks/N.ENDING. `options` are passed to `encode_mask`."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number, mask in enumerate(masks):
        size = mask.size if isinstance(mask, Image.Image) else mask.shape[1::-1]
        Image.new("L", size, 30 * (number % 8)).save(folder / "images" / f"{number:02}.png")
        (folder / "masks" / f"{number:02}.{ending}").write_bytes(encode_mask(mask, ending, **options))
    return folder


def recognize_folder(folder: Path) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=("masks",))


def report_on(folder: Path, ignored: int | None = None) -> DatasetReport:
    return inspect(
        str(folder), val_fraction=0.25, seed=0, kinds=("masks",), ignored=ignored, progress=lambda done, total: None
    )


def measure_class_fractions(folder: Path) -> dict[str, float]:
    """Return the fraction of each class in the training split, rounded to hundredths."""
    report = report_on(folder)
    assert report.splits, report.problems
    assert not report.unreadable, report.unreadable
    return {name: round(share, 2) for name, share in report.splits[0].shares.items()}


def get_mask_code(recognized: RecognizedDataset) -> MaskCode:
    """Return the recognized meaning of the mask values. Fail if it was not recognized."""
    assert recognized.code is not None, recognized.problems
    return recognized.code


def make_disc(seed: int) -> np.ndarray:
    """Return a white disc on black, uint8 [96, 96]."""
    rows, columns = np.mgrid[:96, :96]
    return (((rows - 48) ** 2 + (columns - 40 - seed) ** 2 < 900) * 255).astype(np.uint8)
