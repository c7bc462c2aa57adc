"""Generators of images and idx files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, color: object = (200, 30, 30), size: tuple[int, int] = (20, 16), mode: str = "RGB") -> Path:
    """Write an image of one color and return its path. The suffix determines the file format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)  # type: ignore[arg-type]
    return path


def write_noise(path: Path, seed: int = 0, size: tuple[int, int] = (64, 48)) -> Path:
    """Write an image of random noise and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def encode_idx(array: np.ndarray) -> bytes:
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = encode_idx(array)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
