"""Encoder of ground-truth images for formats that store them in archives."""

from __future__ import annotations

import io

from PIL import Image

from tests.support.dataset_formats.truth import TrueImage


def encode_png(image: TrueImage) -> bytes:
    """Return an image as a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(image.draw_pixels()).save(stream, "PNG")
    return stream.getvalue()
