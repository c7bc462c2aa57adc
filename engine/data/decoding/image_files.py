"""Names of image files. Torch-free."""

from __future__ import annotations

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"})


def is_image(name: str) -> bool:
    """Return True if `name` has the ending of an image."""
    return name[name.rfind(".") :].lower() in EXTENSIONS
