"""JSON files from VoTT: one export with all images, or one file per image. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.reading import decode_text, read_head, read_json
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.json_files import create_read_error
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    convert,
    make_box_shape,
    make_polygon_shape,
    parse_size,
)
from engine.data.formats.tree import Tree
from engine.data.splits import printable, warn_about
from engine.system.format import counted

LAYOUT = "Choose a folder with images and VoTT's export: vott-json-export/NAME-export.json, or NAME-asset.json files."
_ENDINGS = ("-export.json", "-asset.json")
_SAMPLED = 20  # files whose beginnings detection reads
_NOT_OPENED = 0
"""State in VoTT's files of an image that was never opened."""


def _detect(tree: Tree) -> list[Detection]:
    """Detect files with VoTT's names.

    At least one of the first `_SAMPLED` files must have the usual keys near its beginning.
    """
    files = _find_files(tree)
    beginnings = [decode_text(read_head(tree.path(name))) for name in files[:_SAMPLED]]
    fitting = [text for text in beginnings if '"regions"' in text and ('"assets"' in text or '"asset"' in text)]
    if not fitting:
        return []
    has_outlines = any('"POLYGON"' in text for text in fitting)
    evidence = (f"{counted(len(files), 'JSON file')} of VoTT, such as {printable(files[0])}",)
    kinds = ("instances", "boxes") if has_outlines else ("boxes",)
    return [Detection(kinds, Confidence.CERTAIN, evidence, source=files)]


def _find_files(tree: Tree) -> list[str]:
    """Return the paths of exports, which describe all images, or else those of files about a single image each."""
    found = [name for name in tree.find(".json", depth=2) if name.lower().endswith(_ENDINGS)]
    return [name for name in found if name.lower().endswith(_ENDINGS[0])] or found


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their regions: as boxes for the kind "boxes", otherwise as outlined objects."""
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, detection.source)
    faults: list[str] = []
    for split, file in files.iterate_files():
        images = []
        for asset, regions in _iterate_assets(tree, file, files.problems):
            name = str(asset.get("name") or "")
            path = str(asset.get("path") or name)
            image = files.find(path, file, split, other_name=name)
            if image is not None:
                shapes = [shape for region in regions for shape in _make_shapes(region, path, faults)]
                size = asset.get("size")
                sides = size if isinstance(size, dict) else {}
                images.append(ShapedImage(image, shapes, parse_size(sides.get("height"), sides.get("width"))))
        files.add(split, images)
    by_split = files.finish()
    remedy = "Such regions are left out; correct them in VoTT."
    files.problems += warn_about(faults, "region", "without a tag or corners, in", remedy)
    return convert(kind, by_split, files.problems)


def _iterate_assets(tree: Tree, file: str, problems: list[Problem]) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Yield the images (assets) in a file with their regions. Images that were not opened in VoTT are left out.

    Faults are appended to `problems`.
    """
    try:
        content = read_json(tree.path(file))
    except (OSError, ValueError) as error:
        problems.append(create_read_error(file, error, "Export it again from VoTT."))
        return
    content = content if isinstance(content, dict) else {}
    assets = content.get("assets")
    entries = assets.values() if isinstance(assets, dict) else [content]  # a file about one image has no "assets"
    for entry in entries:
        asset, regions = (entry.get("asset"), entry.get("regions")) if isinstance(entry, dict) else (None, None)
        if isinstance(asset, dict) and isinstance(regions, list) and (regions or asset.get("state") != _NOT_OPENED):
            yield asset, regions


def _make_shapes(region: Any, file: str, faults: list[str]) -> list[Shape]:
    """Convert a region to one shape for each of its tags. If the region is unusable, `file` is appended to `faults`."""
    try:
        tags = [str(tag) for tag in region["tags"]]
        points = [(float(point["x"]), float(point["y"])) for point in region.get("points") or ()]
        box = region.get("boundingBox")
        found: list[Shape | None] = []
        if str(region.get("type", "")).upper() == "POLYGON" or not box:
            found = [make_polygon_shape(tag, points) for tag in tags]
        else:
            left, top, width, height = (float(box[key]) for key in ("left", "top", "width", "height"))
            found = [make_box_shape(tag, left, top, left + width, top + height) for tag in tags]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        found = []
    shapes = [shape for shape in found if shape is not None]
    if not shapes:
        faults.append(file)
    return shapes


FORMAT = Format("vott", "VoTT JSON", ("instances", "boxes"), LAYOUT, _detect, _read)
