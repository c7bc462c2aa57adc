"""Recognize image files by their names. Torch-free."""

from __future__ import annotations

EXTENSIONS = frozenset(
    {
        *(".jpg", ".jpeg", ".jfif", ".jpe"),
        *(".png", ".bmp", ".webp", ".gif", ".tga"),
        *(".tif", ".tiff", ".jp2"),
        *(".avif", ".heic", ".heif"),
        *(".pbm", ".pgm", ".ppm", ".pnm"),
        ".npy",
    }
)


def is_image(name: str) -> bool:
    """Return True if `name` has the extension of an image file."""
    return name[name.rfind(".") :].lower() in EXTENSIONS
