"""Assign annotation files to splits by their names, and collect the images that the files annotate. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.tree import Tree, split_of_file
from engine.data.splits import count_sentence, dataset_error, dataset_warning, first_names, warn_about

_ORDER = ("train", "val", "test", "")


@dataclass
class AnnotationFiles:
    """Annotation files of a dataset, grouped by split.

    Attributes:
        splits: Names of the files of each split: "train", "val", "test" or "", in this order.
        unused: Names of files that are not read.
    """

    splits: dict[str, list[str]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, names: Iterable[str], preferred: str = "") -> AnnotationFiles:
        """Group files by split.

        If a folder has several files for one split, those with `preferred` in their names are used, or all of them if
        none has this word. Files without a split are not used if there is a training split.
        """
        groups: dict[tuple[str, str], list[str]] = {}
        for name in sorted(names):
            groups.setdefault((split_of_file(name), os.path.dirname(name)), []).append(name)
        found = cls()
        for split in _ORDER:
            for (of_split, _), group in groups.items():
                if of_split != split:
                    continue
                best = [name for name in group if preferred in os.path.basename(name).lower()] or group
                if split == "" and "train" in found.splits:
                    best = []
                found.splits.setdefault(split, []).extend(best)
                found.unused += [name for name in group if name not in best]
        found.splits = {split: group for split, group in found.splits.items() if group}
        return found

    def problems(self) -> list[Problem]:
        """Return a warning about files that are not read."""
        if not self.unused:
            return []
        message = f"{count_sentence(self.unused, 'annotation file')} that {_is(self.unused)} not used: {first_names(self.unused)}."
        used = first_names([name for group in self.splits.values() for name in group])
        remedy = f"Used are {used}. Put the word train, val or test into a file's name to use it for that split."
        return [dataset_warning(message, remedy)]


class Annotated(Protocol):
    """Interface for images with their annotations from a file."""

    @property
    def path(self) -> str:
        """Full path of the image."""


ImageT = TypeVar("ImageT", bound=Annotated)


class ImageSplits(Generic[ImageT]):
    """Collector for the annotated images of each split.

    Each image is added only once to a split. An image is not added without a split if a split already contains it.

    Attributes:
        images: Annotated images by split.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Create an empty collection. `names` are the splits for which the folder has annotation files."""
        self.images: dict[str, list[ImageT]] = {}
        self._is_single = len(list(names)) == 1
        self._paths: dict[str, set[str]] = {}  # all images by split
        self._again: list[str] = []  # images that several files list
        self._annotated: set[str] = set()  # splits with annotations

    def add(self, split: str, images: Sequence[ImageT], *, is_annotated: bool = True) -> bool:
        """Add the images from a file to a split and return True if any of them is new.

        If the folder has only one split, its images are stored under "", so that validation images are sampled from
        them.

        Args:
            split: Split of the file.
            images: Images that the file lists.
            is_annotated: False if the file has no annotations at all.
        """
        known = set().union(*self._paths.values()) if split == "" else self._paths.get(split, set())
        added = [image for image in images if image.path not in known]
        self._again += [image.path for image in images if image.path in known]
        self.images.setdefault("" if self._is_single else split, []).extend(added)
        self._paths.setdefault(split, set()).update(image.path for image in images)
        if is_annotated:
            self._annotated.add("" if self._is_single else split)
        return bool(added)

    def remove_unannotated(self, problems: list[Problem]) -> None:
        """Remove splits without annotations, such as the test images of challenges, if other splits have annotations.

        A warning about each of them is appended to `problems`.
        """
        for split in set(self.images) - self._annotated if self._annotated else ():
            images = self.images.pop(split)
            message = f"No image of the {split} split has annotations ({len(images):,} images)."
            problems.append(dataset_warning(message, "The split is not used; annotate its images to use it."))

    def problems(self) -> list[Problem]:
        """Return a warning about images that are annotated in several files."""
        remedy = "The annotations of the first file are used; merge the files to use all."
        return warn_about(self._again, "image", "annotated in several files:", remedy)


class NamedImages:
    """Search for the images that annotation files name. Images that are not found are reported together."""

    def __init__(self, tree: Tree) -> None:
        self._lookup = ImageLookup(tree)
        self._missing: list[str] = []
        self._ambiguous: list[str] = []
        self._are_found = False

    def find(self, name: str, file: str, split: str) -> str | None:
        """Return the full path of the image that an annotation file names, or record it as missing and return None.

        `name` is the name or path of the image in the annotation file `file`, which belongs to `split`.
        """
        before = len(self._lookup.ambiguous)
        path = self._lookup.find(name, os.path.dirname(file), split=split, ending=is_image(name))
        if path is not None:
            self._are_found = True
        else:
            (self._ambiguous if len(self._lookup.ambiguous) > before else self._missing).append(name)
        return path

    def problems(self) -> Iterator[Problem]:
        """Yield warnings about missing images, or errors if no image was found."""
        report = dataset_warning if self._are_found else dataset_error
        if self._missing:
            message = f"{count_sentence(self._missing, 'image')} named in the annotations but not in the folder"
            remedy = "Such images are left out; put them next to the annotations, or into a folder named images."
            yield report(f"{message}: {first_names(self._missing)}.", remedy)
        if self._ambiguous:
            message = f"{count_sentence(self._ambiguous, 'name')} in the annotations that several images have"
            remedy = "Such names are left out; put the images' folders into the names."
            yield report(f"{message}: {first_names(self._ambiguous)}.", remedy)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
