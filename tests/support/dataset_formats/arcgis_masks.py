"""Writer of mask datasets that ArcGIS exports for Mask R-CNN."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "names")
WITHOUT_SPLITS = VARIANTS


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, the definition file, and a folder of masks per class.

    Each folder is named after the number of its class, or after its name in the variant "names".
    """
    for image in truth.images:
        image.save(folder / f"images/{image.name}.tif")
        for value, name in enumerate(truth.classes, 5):
            objects = [each for each in image.objects if each.name == name]
            mask = np.zeros((image.height, image.width), np.uint8)
            for number, each in enumerate(objects, 1):
                left, top, right, bottom = each.box
                mask[top:bottom, left:right] = number
            if objects:
                save_mask(folder / f"labels/{name if variant == 'names' else value}/{image.name}.tif", mask)
    classes = [{"Value": value, "Name": name} for value, name in enumerate(truth.classes, 5)]
    content = {"MetaDataMode": "RCNN_Masks", "Classes": classes}
    (folder / "esri_model_definition.emd").write_text(json.dumps(content))
