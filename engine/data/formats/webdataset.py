"""WebDataset: tar files of images, each with its classes in a file of the same name. Torch-free."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_IMAGE_BYTES, MAX_TEXT_BYTES, decode_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.class_numbers import find_names
from engine.data.formats.shared.label_columns import LABEL_COLUMNS
from engine.data.formats.shared.shapes import ShapedImage, convert
from engine.data.formats.shared.tables import plain
from engine.data.formats.shared.unpacking import file_name, unpacked
from engine.data.formats.tree import Tree, split_of_table
from engine.data.splits import printable, warn_about
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.regular_files import UnusableFile, open_regular

LAYOUT = "Choose a folder of tar files, each with images and their classes as KEY.jpg and KEY.cls or KEY.json."
ENDINGS = (".tar", ".tgz", ".gz")
_PEEKED = 60
_INDEX = "index.json"
_CLASSES = ("cls", "class", "label", "json", "cls.txt", "label.txt")


@dataclass
class Sample:
    """Sample in a tar file: the members that share the name `key` apart from their extensions.

    `name` and `content` are those of the image, or empty if there is none. `labels` are its classes.
    """

    key: str
    name: str = ""
    content: bytes = b""
    labels: list[str] = field(default_factory=list)


def find_archives(tree: Tree) -> list[str]:
    """Return the paths of tar files in folders up to two levels deep, relative to the dataset folder."""
    return [
        os.path.join(folder, name)
        for folder in tree.walk(depth=2)
        for name in tree.files(folder, ENDINGS)
        if name.lower().endswith((".tar", ".tar.gz", ".tgz"))
    ]


def samples(path: str, *, at_most: int | None = None) -> Iterator[Sample]:
    """Yield the samples in a tar file in order.

    Args:
        path: Full path.
        at_most: Maximum number of members to read, or None for all.

    Raises:
        UnusableFile: The file is damaged or not a tar file.
        OSError: The file can't be read.
    """
    current = Sample("")
    with _opened(path) as archive:
        for number, member in enumerate(archive):
            archive.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
            if at_most is not None and number >= at_most:
                break
            folder, name = os.path.split(member.name)
            base, _, ending = name.partition(".")
            if not member.isreg() or not base or not ending:
                continue
            key = f"{folder}/{base}"
            if key != current.key:
                if current.key:
                    yield current
                current = Sample(key)
            _add(current, archive, member, ending.lower())
    if current.key:
        yield current


def _add(sample: Sample, archive: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> None:
    """Read a member of a tar file with the extension `ending`, and add it to its sample."""
    if is_image(member.name):
        if not sample.name and 0 < member.size <= MAX_IMAGE_BYTES:
            sample.name, sample.content = member.name, _content(archive, member)
    elif ending in _CLASSES and member.size <= MAX_TEXT_BYTES:
        text = decode_text(_content(archive, member)).strip()
        sample.labels += _labels_of_json(text) if ending == "json" else [text] if text else []


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return b"" if stream is None else stream.read()


def _labels_of_json(text: str) -> list[str]:
    """Return the class names in a sample's JSON file.

    In an object, they are read from the first field with a known name. A bare number or string is itself the class.
    """
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if isinstance(content, dict):
        fields = {plain(str(key)): value for key, value in content.items()}
        content = next((fields[name] for name in (*LABEL_COLUMNS, "cls") if name in fields), None)
    listed = content if isinstance(content, list) else [content]
    return [str(each).strip() for each in listed if isinstance(each, str | int) and not isinstance(each, bool)]


@contextmanager
def _opened(path: str) -> Iterator[tarfile.TarFile]:
    with refuse_unusable(path):
        try:
            with open_regular(path) as stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
                yield archive
        except (tarfile.TarError, EOFError) as error:
            raise UnusableFile(
                path, f"is not a readable tar file ({printable(str(error))[:100]})", "Download it again."
            ) from None


def _detect(tree: Tree) -> list[Detection]:
    """Detect tar files if most of the images at the beginning of the first ones have classes or labels."""
    shards = find_archives(tree)
    found: list[Sample] = []
    for shard in shards[:3]:
        try:
            found += samples(tree.path(shard), at_most=_PEEKED)
        except (OSError, UnusableFile):
            continue
    labeled = [sample for sample in found if sample.name and sample.labels]
    if not labeled or len(labeled) < len([sample for sample in found if sample.name]) / 2:
        return []
    several = any(len(sample.labels) > 1 for sample in labeled)
    files = "1 tar file" if len(shards) == 1 else f"{len(shards):,} tar files"
    evidence = (f"{files} with images and classes, such as {printable(shards[0])}",)
    kinds = ("labels",) if several else ("classes", "labels")
    return [Detection(kinds, Confidence.CERTAIN, evidence, source=tuple(shards))]


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Unpack the images from all tar files into the cache, and return them with their classes or labels."""
    shards: Sequence[str] = detection.source
    folder = unpacked([tree.path(shard) for shard in shards], lambda target: _unpack(tree, shards, target))
    index = msgspec.json.decode(read_file(folder / _INDEX, MAX_RESULT_BYTES), type=list[list[tuple[str, list[str]]]])
    splits: dict[str, list[ShapedImage]] = {}
    without: list[str] = []
    for shard, images in zip(shards, index, strict=True):
        split = split_of_table(*os.path.split(shard))
        for name, labels in images:
            if name:
                splits.setdefault(split, []).append(ShapedImage(str(folder / name), tags=tuple(dict.fromkeys(labels))))
            else:
                without.append(shard)
    problems = warn_about(without, "sample", "without an image, in", "Such samples are left out.")
    classes = _name_numbers(tree, splits)
    return convert(kind, splits, problems, classes)


def _name_numbers(tree: Tree, splits: dict[str, list[ShapedImage]]) -> list[str] | None:
    """Replace class numbers with names if a file lists them, and return the classes in numeric order.

    Returns None if the classes are not numbers.
    """
    tags = {tag for images in splits.values() for image in images for tag in image.tags}
    if not tags or not all(tag.isascii() and tag.isdigit() for tag in tags):
        return None
    names = find_names(tree, [""], [int(tag) for tag in tags])
    title = {tag: names.get(int(tag), tag) for tag in tags}
    for images in splits.values():
        for image in images:
            image.tags = tuple(title[tag] for tag in image.tags)
    return [title[tag] for tag in sorted(tags, key=int)]


def _unpack(tree: Tree, shards: Sequence[str], folder: Path) -> None:
    """Write the images in the tar files `shards` to `folder`, with an index of their names and labels."""
    index: list[list[tuple[str, list[str]]]] = []
    for number, shard in enumerate(shards):
        (folder / f"{number:05d}").mkdir()
        found: list[tuple[str, list[str]]] = []
        used: set[str] = set()
        for row, sample in enumerate(samples(tree.path(shard))):
            name = ""
            if sample.name:
                name = f"{number:05d}/{file_name(sample.name, sample.content, row, used)}"
                (folder / name).write_bytes(sample.content)
            found.append((name, sample.labels))
        index.append(found)
    (folder / _INDEX).write_bytes(msgspec.json.encode(index))


FORMAT = Format("webdataset", "WebDataset", ("classes", "labels"), LAYOUT, _detect, _read)
