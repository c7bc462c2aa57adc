"""Writer of KITTI folders."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "splits", "lists", "nested", "utf16")
KIND = "boxes"
WITHOUT_SPLITS = ("plain", "nested", "utf16")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and KITTI's text files in the layout `variant`. Only "splits" and "lists" have separate splits."""
    for image in truth.images:
        image_at, text_at = _get_paths(image, variant)
        image.save(folder / image_at)
        path = folder / text_at
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            " ".join(map(str, (each.name, 0.0, 0, -1.5, *map(float, each.box), 1.5, 1.6, 3.9, 1, 2, 8, -1.5)))
            for each in image.objects
        ]
        path.write_text("\n".join(lines), "utf-16" if variant == "utf16" and lines else "utf-8")
    if variant == "lists":
        (folder / "ImageSets").mkdir()
        for split in ("train", "val"):
            (folder / f"ImageSets/{split}.txt").write_text("\n".join(image.name for image in truth.get_images(split)))


def _get_paths(image: TrueImage, variant: str) -> tuple[str, str]:
    """Return the paths of an image and its text file in the layout of a variant."""
    names = f"{image.name}.png", f"{image.name}.txt"
    if variant == "nested":
        drive = f"drive_{len(image.objects)}"
        return f"images/{drive}/{names[0]}", f"labels/{drive}/{names[1]}"
    if variant == "splits":
        return f"{image.split}/images/{names[0]}", f"{image.split}/labels/{names[1]}"
    if variant == "lists":
        return f"training/image_2/{names[0]}", f"training/label_2/{names[1]}"
    return f"image_2/{names[0]}", f"label_2/{names[1]}"
