"""Writer of WIDER FACE folders, in which objects of all classes are written as faces.

The classes can't be recovered, so tests don't compare annotations with the ground truth. The module therefore has no
`VARIANTS`, and isn't one of the `WRITERS`.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.dataset_formats.truth import Truth


def write(truth: Truth, folder: Path) -> None:
    """Write the images of each split, and a text file per split with the boxes of their objects."""
    (folder / "wider_face_split").mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        lines = []
        for number, image in enumerate(truth.get_images(split)):
            name = f"{number}--Event/{image.name}.png"
            image.save(folder / f"WIDER_{split}/images/{name}")
            lines += [name, str(len(image.objects))]
            for each in image.objects:
                left, top, right, bottom = each.box
                lines.append(f"{left} {top} {right - left} {bottom - top} 0 0 0 0 0 0 ")
            if not image.objects:
                lines.append("0 0 0 0 0 0 0 0 0 0 ")
        (folder / f"wider_face_split/wider_face_{split}_bbx_gt.txt").write_text("\n".join(lines) + "\n")
