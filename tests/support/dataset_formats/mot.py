"""Writer of MOT Challenge folders. Each split is a video, each ground-truth image a frame."""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "splits")
KIND = "boxes"
WITHOUT_SPLITS = ("plain",)


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the ground truth as videos, with the class names in CVAT's format.

    Only the variant "splits" has splits.
    """
    for number_of_video, split in enumerate(("train", "val"), 1):
        video = folder / (split if variant == "splits" else "") / f"video-{number_of_video:02d}"
        lines = []
        for image in truth.get_images(split):
            image.save(video / f"img1/{image.name}.png")
            for number, each in enumerate(image.objects, 1):
                left, top, right, bottom = each.box
                label = truth.classes.index(each.name) + 1
                frame = image.name.rpartition("_")[2]
                lines.append(f"{frame},{number},{left},{top},{right - left},{bottom - top},1,{label},1.0")
        (video / "gt").mkdir()
        (video / "gt/gt.txt").write_text("\n".join(lines))
        (video / "gt/labels.txt").write_text("\n".join(truth.classes))
