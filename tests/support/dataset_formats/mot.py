"""Writer of MOT Challenge folders: a video for each image of the truth, all of it in one frame."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "splits")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the truth as videos with CVAT's names of classes; only "splits" is with splits."""
    for image in truth.images:
        video = folder / (image.split if variant == "splits" else "") / f"video-{image.name}"
        image.save(video / "img1/000001.png")
        (video / "gt").mkdir()
        lines = []
        for number, each in enumerate(image.objects, 1):
            left, top, right, bottom = each.box
            label = truth.classes.index(each.name) + 1
            lines.append(f"1,{number},{left},{top},{right - left},{bottom - top},1,{label},1.0")
        (video / "gt/gt.txt").write_text("\n".join(lines))
        (video / "gt/labels.txt").write_text("\n".join(truth.classes))
