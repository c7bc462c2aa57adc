"""Writer of DOTA folders."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "splits", "nested", "utf16")
KIND = "boxes"
WITHOUT_SPLITS = ("plain", "nested")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and DOTA's text files in the layout `variant`, one of `VARIANTS`.

    Only the layouts "splits" and "utf16" have splits.
    """
    for image in truth.images:
        image_at, text_at = _get_paths(image, variant)
        image.save(folder / image_at)
        path = folder / text_at
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["imagesource:GoogleEarth", "gsd:0.146343590398"]
        for each in image.objects:
            corners = [float(value) for point in each.polygon for value in point]
            lines.append(" ".join(map(str, (*corners, each.name, 0))))
        path.write_text("\n".join(lines), "utf-16" if variant == "utf16" else "utf-8")


def _get_paths(image: TrueImage, variant: str) -> tuple[str, str]:
    """Return the paths of an image and its text file in the layout of a variant."""
    names = f"{image.name}.png", f"{image.name}.txt"
    if variant == "plain":
        return f"images/{names[0]}", f"labelTxt/{names[1]}"
    if variant == "nested":
        return f"images/part{len(image.objects)}/{names[0]}", f"labelTxt-v1.5/{names[1]}"
    return f"{image.split}/images/{names[0]}", f"{image.split}/labelTxt/{names[1]}"
