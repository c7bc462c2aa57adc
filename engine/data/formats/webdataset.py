"""WebDataset: tar files of images, each with its classes in a file of the same name. Torch-free."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_IMAGE_BYTES, MAX_TEXT_BYTES, decode_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.class_numbers import name_numbers
from engine.data.formats.shared.label_columns import LABEL_COLUMNS
from engine.data.formats.shared.shapes import ShapedImage, convert, rename_classes
from engine.data.formats.shared.tables import normalize_name
from engine.data.formats.shared.unpacking import PackedSample, unpack_images
from engine.data.formats.tree import Tree, split_of_table
from engine.data.splits import printable, warn_about
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, open_regular

LAYOUT = "Choose a folder of tar files, each with images and their classes as KEY.jpg and KEY.cls or KEY.json."
ENDINGS = (".tar", ".tgz", ".gz")
_PEEKED = 60  # members of a tar file that detection reads
_MAX_MEMBER_BYTES = 1 << 36  # tarfile skips a member in small steps, even beyond the end of the file
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

    @property
    def has_image(self) -> bool:
        return bool(self.name)


def find_archives(tree: Tree) -> list[str]:
    """Return the paths of tar files in folders up to two levels deep, relative to the dataset folder."""
    return [
        os.path.join(folder, name)
        for folder in tree.walk(depth=2)
        for name in tree.files(folder, ENDINGS)  # ".gz" is also the ending of other files
        if name.lower().endswith((".tar", ".tar.gz", ".tgz"))
    ]


def iterate_samples(path: str, *, at_most: int | None = None) -> Iterator[Sample]:
    """Yield the samples in a tar file in order, reading at most `at_most` members.

    Raises UnusableFile if the file is damaged, not a tar file, or has a huge member, and OSError if it can't be read.
    """
    current = Sample("")
    with _open_tar(path) as archive:
        for number, member in enumerate(archive):
            archive.members = []  # type: ignore[attr-defined]  # else all headers stay in memory
            if at_most is not None and number >= at_most:
                break
            if member.size > _MAX_MEMBER_BYTES:
                raise UnusableFile(path, f"has a member of {member.size:,} bytes", "Download it again, or divide it.")
            folder, name = os.path.split(member.name)
            base, _, ending = name.partition(".")
            if not member.isreg() or not base or not ending:
                continue
            key = f"{folder}/{base}"
            if key != current.key:  # the members of a sample follow each other
                if current.key:
                    yield current
                current = Sample(key)
            _add_member(current, archive, member, ending.lower())
    if current.key:
        yield current


def _add_member(sample: Sample, archive: tarfile.TarFile, member: tarfile.TarInfo, ending: str) -> None:
    """Read a member of a tar file with the extension `ending`, and add it to its sample."""
    if is_image(member.name):
        if not sample.name and 0 < member.size <= MAX_IMAGE_BYTES:  # of several images, the first one is used
            sample.name, sample.content = member.name, _read_content(archive, member)
    elif ending in _CLASSES and member.size <= MAX_TEXT_BYTES:
        text = decode_text(_read_content(archive, member)).strip()
        if ending == "json":
            sample.labels += _parse_json_labels(text)
        elif text:
            sample.labels.append(text)


def _read_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a member of a tar file, or b"" if it is not a regular file."""
    stream = archive.extractfile(member)
    return b"" if stream is None else stream.read()


def _parse_json_labels(text: str) -> list[str]:
    """Return the class names in a sample's JSON file.

    In an object, they are read from the first field with a known name. A bare number or string is itself the class.
    """
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if isinstance(content, dict):
        fields = {normalize_name(str(key)): value for key, value in content.items()}
        content = next((fields[name] for name in (*LABEL_COLUMNS, "cls") if name in fields), None)
    listed = content if isinstance(content, list) else [content]
    return [str(each).strip() for each in listed if isinstance(each, str | int) and not isinstance(each, bool)]


@contextmanager
def _open_tar(path: str) -> Iterator[tarfile.TarFile]:
    """Open a tar file, compressed or not, to read it once from beginning to end. Raises UnusableFile or OSError."""
    with refuse_unusable(path):
        try:
            with open_regular(path) as stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
                yield archive
        except UnusableFile:
            raise
        except (tarfile.TarError, EOFError, ValueError) as error:  # ValueError for invalid numbers in headers
            raise UnusableFile(
                path, f"is not a readable tar file ({printable(str(error))[:100]})", "Download it again."
            ) from None


def _detect(tree: Tree) -> list[Detection]:
    """Detect tar files if most of the images at the beginning of the first ones have classes or labels."""
    shards = find_archives(tree)
    found: list[Sample] = []
    for shard in shards[:3]:
        try:
            found += iterate_samples(tree.path(shard), at_most=_PEEKED)
        except (OSError, UnusableFile):
            continue
    with_image = [sample for sample in found if sample.name]
    labeled = [sample for sample in with_image if sample.labels]
    if not labeled or len(labeled) < len(with_image) / 2:
        return []
    has_several_labels = any(len(sample.labels) > 1 for sample in labeled)
    evidence = (f"{counted(len(shards), 'tar file')} with images and classes, such as {printable(shards[0])}",)
    kinds = ("labels",) if has_several_labels else ("classes", "labels")
    return [Detection(kinds, Confidence.CERTAIN, evidence, source=tuple(shards))]


def _read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Unpack the images from all tar files into the cache, and return them with their classes or labels."""
    shards: Sequence[str] = detection.source

    def read_tar(path: str) -> Iterator[PackedSample]:
        return (PackedSample(sample.name, sample.content, sample.labels) for sample in iterate_samples(path))

    splits: dict[str, list[ShapedImage]] = {}
    without_image: list[str] = []
    samples_by_shard = unpack_images(list(map(tree.path, shards)), read_tar)
    for shard, samples in zip(shards, samples_by_shard, strict=True):
        split = split_of_table(*os.path.split(shard))
        for sample in samples:
            if sample.path:
                image = ShapedImage(sample.path, tags=tuple(dict.fromkeys(sample.labels)))
                splits.setdefault(split, []).append(image)
            else:
                without_image.append(shard)
    problems = warn_about(without_image, "sample", "without an image, in", "Such samples are left out.")
    all_images = [image for images_of_split in splits.values() for image in images_of_split]
    titles = name_numbers(tree, [""], {tag for image in all_images for tag in image.tags})
    if titles is not None:
        rename_classes(all_images, titles)
    return convert(kind, splits, problems, None if titles is None else list(titles.values()))


FORMAT = Format("webdataset", "WebDataset", ("classes", "labels"), LAYOUT, _detect, _read)
