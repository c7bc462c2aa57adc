"""JSON files from VoTT: one export with all images, or one file per image. Torch-free."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.reading import MAX_PIXELS, MAX_TABLE_BYTES, decode_text, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.shapes import Shape, ShapedImage, box_shape, convert, polygon_shape
from engine.data.formats.shared.tables import HEAD_BYTES
from engine.data.formats.tree import Tree, split_named
from engine.data.splits import dataset_error, printable, warn_about
from engine.system.regular_files import UnusableFile, open_regular

LAYOUT = "Choose a folder with images and VoTT's export: vott-json-export/NAME-export.json, or NAME-asset.json files."
_ENDINGS = ("-export.json", "-asset.json")
_SAMPLED = 20
_UNSEEN = 0
"""State of an image that was never opened in VoTT."""


def _detect(tree: Tree) -> list[Detection]:
    files = _files(tree)
    opened = [text for folder, name in files[:_SAMPLED] if (text := _head(tree.path(folder, name)))]
    fitting = [text for text in opened if '"regions"' in text and ('"assets"' in text or '"asset"' in text)]
    if not fitting:
        return []
    outlined = any('"POLYGON"' in text for text in fitting)
    evidence = (f"{len(files):,} JSON files of VoTT, such as {printable(os.path.join(*files[0]))}",)
    kinds = ("instances", "boxes") if outlined else ("boxes",)
    return [Detection(kinds, Confidence.CERTAIN, evidence, source=files)]


def _files(tree: Tree) -> list[tuple[str, str]]:
    """Return the folder and name of each export, or if there are none, of each file about a single image."""
    found = [
        (folder, name)
        for folder in itertools.islice(tree.walk(depth=2), 500)
        for name in tree.files(folder, ".json")
        if name.lower().endswith(_ENDINGS)
    ]
    exports = [each for each in found if each[1].lower().endswith(_ENDINGS[0])]
    return exports or found


def _head(path: str) -> str:
    try:
        with open_regular(path) as stream:
            return decode_text(stream.read(HEAD_BYTES))
    except (OSError, UnusableFile):
        return ""


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their regions as outlined objects or boxes, or with their tags."""
    lookup = ImageLookup(tree)
    problems: list[Problem] = []
    splits: dict[str, list[ShapedImage]] = {}
    missing: list[str] = []
    faults: list[str] = []
    for folder, name in detection.source:
        split = next((found for part in folder.split(os.sep) if (found := split_named(part))), "")
        for asset, regions in _assets(tree.path(folder, name), tree, problems):
            file = str(asset.get("path") or asset.get("name") or "")
            path = lookup.find(file, folder, split=split) or lookup.find(
                str(asset.get("name") or ""), folder, split=split
            )
            if path is None:
                missing.append(file)
                continue
            image = ShapedImage(path, size=_size(asset.get("size")))
            for region in regions:
                image.shapes += _shapes(region, file, faults)
            splits.setdefault(split, []).append(image)
    remedy = "Such images are left out; copy the images into the folder."
    problems += warn_about(missing, "image", "named in VoTT's files but not in the folder:", remedy)
    problems += warn_about(
        faults, "region", "without a tag or corners, in", "Such regions are left out; correct them in VoTT."
    )
    return convert(kind, splits, problems)


def _assets(path: str, tree: Tree, problems: list[Problem]) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Yield the images (assets) in a file with their regions. Images that were not opened in VoTT are left out.

    Faults are appended to `problems`.
    """
    try:
        with refuse_unusable(path):
            content = json.loads(read_text(path, MAX_TABLE_BYTES))
    except ValueError as error:
        reason = error.words if isinstance(error, UnusableFile) else "is not valid JSON"
        problems.append(dataset_error(f"{printable(tree.within(path))} {reason}.", "Export it again from VoTT."))
        return
    content = content if isinstance(content, dict) else {}
    assets = content.get("assets")
    for each in assets.values() if isinstance(assets, dict) else [content]:
        asset, regions = (each.get("asset"), each.get("regions")) if isinstance(each, dict) else (None, None)
        if isinstance(asset, dict) and isinstance(regions, list) and (regions or asset.get("state") != _UNSEEN):
            yield asset, regions


def _size(size: Any) -> tuple[int, int] | None:
    try:
        width, height = int(size["width"]), int(size["height"])
    except (KeyError, TypeError, ValueError):
        return None
    return (height, width) if 1 <= min(width, height) <= max(width, height) <= MAX_PIXELS else None


def _shapes(region: Any, file: str, faults: list[str]) -> list[Shape]:
    """Convert a region to one shape for each of its tags. If the region is unusable, `file` is appended to `faults`."""
    try:
        tags = [str(tag) for tag in region["tags"]]
        points = [(float(point["x"]), float(point["y"])) for point in region.get("points") or ()]
        box = region.get("boundingBox")
        found: list[Shape | None] = []
        if str(region.get("type", "")).upper() == "POLYGON" or not box:
            found = [polygon_shape(tag, points) for tag in tags]
        else:
            left, top, width, height = (float(box[key]) for key in ("left", "top", "width", "height"))
            found = [box_shape(tag, left, top, left + width, top + height) for tag in tags]
    except (KeyError, TypeError, ValueError, AttributeError):
        found = []
    shapes = [shape for shape in found if shape is not None]
    if not shapes:
        faults.append(file)
    return shapes


FORMAT = Format("vott", "VoTT JSON", ("instances", "boxes"), LAYOUT, _detect, _read)
