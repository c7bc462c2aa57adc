"""Writer of WebDataset's tar files."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from tests.support.dataset_formats.archives import encode_png
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "splits", "nested", "json", "labels", "gz")
NAMED_APART = ("numbers",)
"""Additional variants that store the class names in classes.txt."""
WITHOUT_SPLITS = ("plain", "numbers", "json", "labels", "gz")
KINDS = {variant: "labels" if variant == "labels" else "classes" for variant in (*VARIANTS, *NAMED_APART)}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images and their classes or labels to two tar files, each with the images of one split.

    The layouts "splits" and "nested" use the names of the splits for the files or their folders. The other layouts have
    no splits.
    """
    with_splits = variant not in WITHOUT_SPLITS
    halves = {"train": truth.get_images("train"), "val": truth.get_images("val")}
    for number, (split, images) in enumerate(halves.items()):
        name = f"{split}-000000.tar" if variant == "splits" else f"shard-{number:06d}.tar"
        path = folder / (split if variant == "nested" and with_splits else "") / (name + ".gz" * (variant == "gz"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:gz" if variant == "gz" else "w") as archive:
            for image in images:
                for ending, content in _make_members(truth, image, variant).items():
                    member = tarfile.TarInfo(f"{image.name}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    if variant == "numbers":
        (folder / "classes.txt").write_text("\n".join(truth.classes))


def _make_members(truth: Truth, image: TrueImage, variant: str) -> dict[str, bytes]:
    """Return the contents of the files that describe an image in the tar file, by suffix."""
    match variant:
        case "numbers":
            labels = {"cls": str(truth.classes.index(image.tags[0]))}
        case "json":
            labels = {"json": json.dumps({"label": image.tags[0], "width": image.width})}
        case "labels":
            labels = {"json": json.dumps({"labels": image.tags})}
        case _:
            labels = {"cls": image.tags[0] + "\n"}
    return {"png": encode_png(image)} | {ending: text.encode() for ending, text in labels.items()}
