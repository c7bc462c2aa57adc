"""Collect images with shapes from the files of an annotation tool, together with all faults. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import describe_failure
from engine.data.formats.format import Confidence, Content, Detection
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.json_files import MAX_FILES_SAMPLED, SAMPLED, sample_json
from engine.data.formats.shared.shapes import ShapedImage, convert, list_class_names
from engine.data.formats.tree import Tree
from engine.data.splits import (
    count_sentence,
    dataset_error,
    dataset_warning,
    first_names,
    printable,
    sample_evenly,
    warn_about,
    warn_unreadable,
)
from engine.system.format import counted


def list_kinds(*, has_outlines: bool, has_boxes: bool, max_tags: int) -> list[str]:
    """Return the kinds of annotations that can be read from an export, the most detailed first.

    `max_tags` is the largest number of tags on one image.
    """
    kinds = ["instances"] if has_outlines else []
    kinds += ["boxes"] if has_outlines or has_boxes else []
    if max_tags == 1:
        kinds.append("classes")
    if max_tags:
        kinds.append("labels")
    return kinds


def detect_files(
    tree: Tree,
    paths: Sequence[str],
    title: str,
    *,
    keys: Iterable[bytes],
    is_valid: Callable[[Any], bool],
    shapes_of: Callable[[Any], Iterable[str]],
    tags_of: Callable[[Any], Sequence[str]],
    outlines: Set[str],
) -> list[Detection]:
    """Detect a format with a JSON file for each image, from a sample of the files.

    If the sample contains no annotations, a larger one is read.

    Args:
        tree: Listing of the dataset.
        paths: Files, relative to the dataset folder.
        title: Name of the format for the evidence.
        keys: Words that each file in the format contains.
        is_valid: Function that checks if the content of a file has the format.
        shapes_of: Function that returns the types of the shapes in a file.
        tags_of: Function that returns the tags of the image in a file.
        outlines: Types of shapes with an outline.
    """
    valid = others = max_tags = 0
    shapes: set[str] = set()
    for count in (SAMPLED, MAX_FILES_SAMPLED):
        contents = [sample_json(tree.path(path), keys) for path in sample_evenly(paths, count)]
        fitting = [content for content in contents if is_valid(content)]
        valid, others = len(fitting), len(contents) - len(fitting)
        shapes = {shape for content in fitting for shape in shapes_of(content)}
        max_tags = max((len(tags_of(content)) for content in fitting), default=0)
        if not valid or shapes or max_tags:
            break
    if not valid:
        return []
    has_boxes = "rectangle" in shapes or not max_tags  # without tags, boxes are assumed
    kinds = list_kinds(has_outlines=bool(shapes & outlines), has_boxes=has_boxes, max_tags=max_tags)
    confidence = Confidence.CERTAIN if valid >= others else Confidence.LIKELY
    against = (f"{others} of {valid + others} JSON files of another format",) if others > valid else ()
    return [Detection(tuple(kinds), confidence, (f"{counted(len(paths), 'JSON file')} of {title}",), against)]


class ShapeCollection:
    """Collector for the images and shapes of a dataset, and for everything unusable in its files.

    Attributes:
        tree: Listing of the dataset.
        splits: Annotated images by split, or by "" for images without a split.
        problems: Problems that are reported individually.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.splits: dict[str, list[ShapedImage]] = {}  # annotated images
        self.problems: list[Problem] = []
        self._lookup = ImageLookup(tree)
        self._used: set[str] = set()  # paths of annotated images
        self._missing: dict[str, None] = {}  # an ordered set
        self._repeated: list[str] = []  # paths of images
        self._renamed: list[str] = []  # annotation files that name another image than the one they belong to
        self._unannotated: list[str] = []  # paths of images
        self._unreadable: list[tuple[str, str]] = []  # annotation files with reasons
        self._unreadable_images: set[str] = set()
        self._objects: dict[str, list[tuple[str, str]]] = {}  # files and details of unusable objects, by reason

    def find(self, name: str, near: str = "", *, split: str = "", has_extension: bool = True) -> str | None:
        """Return the full path of the image that an annotation file calls `name`, or None (see `ImageLookup.find`)."""
        return self._lookup.find(name, near, split=split, has_extension=has_extension)

    def find_named(self, path: str, same_name_image: str | None, name: str, near: str, split: str) -> str | None:
        """Return the full path of the image for an annotation file, or None if it is missing or already used.

        This is the image with the same name as the file, or else the image that the file names. If the file names
        another image that exists, this is recorded for a warning.

        Args:
            path: Annotation file.
            same_name_image: Image with the same name as the annotation file, or None if there is none. Files with such
                an image must be passed to this method first.
            name: Name of the image in the file.
            near: Folder that `name` may be relative to.
            split: Split of the annotations.
        """
        base = os.path.basename(name.replace("\\", "/"))
        if same_name_image is not None:
            folder, image_name = os.path.split(same_name_image)
            if not is_image(base) or base == image_name:
                return same_name_image
            if os.path.splitext(base)[0] == os.path.splitext(image_name)[0]:  # there may be a.jpg and a.png
                has_named_image = base in self.tree.files(self.tree.within(folder))
                return os.path.join(folder, base) if has_named_image else same_name_image
            if self.find(name, near, split=split):
                self._renamed.append(path)
            return same_name_image
        image = self.find(name, near, split=split, has_extension=is_image(base)) if base else None
        return None if image in self._used else image

    def add(self, image: ShapedImage, *splits: str) -> None:
        """Add an annotated image to `splits`. If it has been added before, record the repetition instead."""
        if image.path in self._used:
            self._repeated.append(image.path)
            return
        self._used.add(image.path)
        for split in splits:
            self.splits.setdefault(split, []).append(image)

    def note_missing(self, name: str) -> None:
        """Record that the image `name` is annotated but not in the dataset."""
        self._missing[name] = None

    def note_unannotated(self, name: str) -> None:
        """Record that the image `name` is in an annotation file but has no annotations."""
        self._unannotated.append(name)

    def skip_file(self, path: str, error: Exception, image: str | None = None) -> None:
        """Record that an annotation file can't be read because of `error`. `image` is the image that it describes."""
        self._unreadable.append((path, describe_failure(error)))
        if image is not None:
            self._unreadable_images.add(image)

    def skip_object(self, path: str, reason: str, detail: str = "") -> None:
        """Record that an object can't be used.

        Args:
            path: Annotation file or image that contains the object.
            reason: Phrase that follows "There are 3 objects", such as "without a name". Objects with the same phrase
                are counted together.
            detail: Description of the fault in this object.
        """
        self._objects.setdefault(reason, []).append((path, detail))

    def content(self, kind: str, listed: Iterable[str] = ()) -> Content:
        """Convert the collected images to the annotations of one kind, with all problems.

        `listed` are the classes in the order of the annotation tool. Classes without annotations are dropped.
        """
        remedy = "Images with such annotations are left out; export the annotations again."
        unreadable = warn_unreadable(self._unreadable, "annotation", remedy)
        problems = [*self.problems, *unreadable, *self._find_image_problems(), *self._find_object_problems()]
        if not self._used:
            return Content((), {}, problems)
        self._assign_unsplit_images(problems)
        splits = {
            split: sorted(self.splits[split], key=lambda image: image.path)
            for split in ("", "train", "val", "test")
            if self.splits.get(split)
        }
        names = list_class_names(kind, (image for split in splits.values() for image in split))
        return convert(kind, splits, problems, [name for name in dict.fromkeys(listed) if name in names])

    def _assign_unsplit_images(self, problems: list[Problem]) -> None:
        """Drop annotated images without a split if there are training images. Otherwise, use them for training.

        A warning about dropped images is appended to `problems`.
        """
        without_split = self.splits.get("")
        if not without_split or len(self.splits) == 1:
            return
        if "train" not in self.splits:
            self.splits["train"] = self.splits.pop("")
            return
        del self.splits[""]
        paths = [image.path for image in without_split]
        message = f"{count_sentence(paths, 'annotated image')} in no split: {first_names(paths)}."
        problems.append(dataset_warning(message, "Such images are left out; assign them to train, val or test."))

    def _find_image_problems(self) -> Iterator[Problem]:
        """Yield the problems with missing, ambiguous, repeated and unannotated images."""
        missing = list(self._missing)
        if missing and not self._used:
            message = f"None of the {len(missing):,} annotated images is in the folder: {first_names(missing)}."
            yield dataset_error(message, "Put the images next to the annotations, or into a folder named images.")
            return
        remedy = "Such annotations are not used; put the images next to the annotations, or into images."
        yield from warn_about(missing, "annotation", "without an image:", remedy)
        if self._lookup.ambiguous:
            message = f"{count_sentence(self._lookup.ambiguous, 'image name')} of several images: "
            remedy = "Such names are left out; give each image a name of its own."
            yield dataset_warning(f"{message}{first_names(self._lookup.ambiguous)}.", remedy)
        remedy = "The first is used; remove the others."
        yield from warn_about(self._repeated, "annotation", "of an image that has one already:", remedy)
        remedy = "The images with the names of the annotation files are used; check that they fit."
        yield from warn_about(self._renamed, "annotation", "that names another image:", remedy)
        unannotated = [*self._unannotated, *self._find_unlisted()]
        remedy = "Such images are left out; annotate them to use them."
        yield from warn_about(unannotated, "image", "without an annotation:", remedy)

    def _find_unlisted(self) -> Iterator[str]:
        """Yield the paths of images without annotations in folders that contain annotated images."""
        listed = self._used.union(self._unannotated, self._unreadable_images)
        for folder in sorted({os.path.dirname(path) for path in self._used}):
            paths = [os.path.join(folder, name) for name in self.tree.images(self.tree.within(folder))]
            yield from (path for path in paths if path not in listed)

    def _find_object_problems(self) -> Iterator[Problem]:
        """Yield a warning for each reason why objects are unusable, with their number."""
        for reason, places in self._objects.items():
            paths = [path for path, _ in places]
            path, detail = places[0]
            example = f" ({first_names([path])}: {printable(detail)[:200]})" if detail else ""
            message = f"{count_sentence(paths, 'object')} {reason}, in {first_names(paths)}{example}."
            yield dataset_warning(
                message, "Such objects are left out; correct them in the labeling tool, or remove them."
            )
