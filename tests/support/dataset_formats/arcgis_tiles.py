"""Writer of ArcGIS's labeled tiles."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "several")
NAMED_APART = ("named",)
"""Additional variants that store class numbers with the images and the class names in a separate file."""
WITHOUT_SPLITS = (*VARIANTS, *NAMED_APART)
KINDS = {"plain": "classes", "several": "labels", "named": "labels"}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write each image with an XML file that lists its classes.

    The variant "named" lists class numbers, and writes the class names to a separate file.
    """
    (folder / "labels").mkdir(parents=True)
    for image in truth.images:
        image.save(folder / "images" / f"{image.name}.tif")
        tags = image.tags[:1] if variant == "plain" else image.tags
        names = [str(1 + 2 * truth.classes.index(tag)) if variant == "named" else tag for tag in tags]
        objects = "".join(f"<object><name>{name}</name></object>" for name in names)
        (folder / "labels" / f"{image.name}.xml").write_text(f"<annotation>{objects}</annotation>")
    if variant == "named":
        classes = [{"Value": 1 + 2 * number, "Name": name} for number, name in enumerate(truth.classes)]
        (folder / "esri_model_definition.emd").write_text(json.dumps({"Classes": classes}))
