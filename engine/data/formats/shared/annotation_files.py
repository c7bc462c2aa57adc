"""Read annotation files that describe several images each, and collect the images of all splits. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.json_files import decode_file
from engine.data.formats.tree import Tree, split_of_file
from engine.data.splits import count_sentence, dataset_error, dataset_warning, first_names, warn_about
from engine.system.format import counted

_ORDER = ("train", "val", "test", "")


class Annotated(Protocol):
    """Interface for images with their annotations from a file."""

    @property
    def path(self) -> str:
        """Full path of the image."""


ImageT = TypeVar("ImageT", bound=Annotated)
T = TypeVar("T")


class AnnotationReader(Generic[ImageT]):
    """Reader of the annotation files of a dataset. It collects the annotated images of each split.

    The name of a file determines its split. If a folder has several files for one split, those with `preferred` in
    their names are read, or all of them if none has this word. Files without a split are not read if there is a
    training split. Each image is added only once to a split. Images from files without a split are left out if any
    split already contains them.

    Attributes:
        tree: Listing of the dataset.
        problems: Problems that are known so far. `finish` adds those that concern all files.
    """

    def __init__(self, tree: Tree, names: Iterable[str], preferred: str = "") -> None:
        self.tree = tree
        self.problems: list[Problem] = []
        self._lookup = ImageLookup(tree)
        self._files = self._divide_by_split(names, preferred)
        self._images: dict[str, list[ImageT]] = {}  # new images by split
        self._paths: dict[str, set[str]] = {}  # all images by split
        self._repeated: list[str] = []  # paths of images that several files list
        self._annotated: set[str] = set()  # splits with annotations
        self._missing: list[str] = []  # names of images
        self._ambiguous: list[str] = []  # names that several images have
        self._are_found = False  # True once any image was found

    def iterate_files(self) -> Iterator[tuple[str, str]]:
        """Yield the split ("train", "val", "test" or "") and the name of each file that must be read."""
        return ((split, name) for split, names in self._files.items() for name in names)

    def decode(self, name: str, decoder: msgspec.json.Decoder[T], remedy: str) -> T | None:
        """Return the content of a JSON file. If it can't be read, record an error with `remedy` and return None."""
        return decode_file(self.tree.path(name), name, decoder, self.problems, remedy)

    def find(self, image: str, file: str, split: str, other_name: str = "") -> str | None:
        """Return the full path of the image that an annotation file names.

        Returns None after recording an image as missing or ambiguous.

        Args:
            image: Name or path of the image in the file, relative to any folder.
            file: Annotation file, or another path in the folder that `image` is probably relative to.
            split: Split of the file.
            other_name: Another name of the image, which is tried if `image` isn't found.
        """
        ambiguous_before = len(self._lookup.ambiguous)
        names = [name for name in (image, other_name) if name]
        found = (
            self._lookup.find(name, os.path.dirname(file), split=split, has_extension=is_image(name)) for name in names
        )
        path = next(filter(None, found), None)
        if path is not None:
            self._are_found = True
            return path
        is_ambiguous = len(self._lookup.ambiguous) > ambiguous_before
        (self._ambiguous if is_ambiguous else self._missing).append(image)
        return None

    def add(self, split: str, images: Sequence[ImageT], *, is_annotated: bool = True) -> bool:
        """Add the images from a file to a split and return True if any of them is new.

        If the folder has only one split, its images are stored under "", so that validation images are sampled from
        them. `is_annotated` is False if the file has no annotations at all.
        """
        # An image without a split must not be in any split, and other images not twice in the same split.
        compared = list(self._paths.values()) if split == "" else [self._paths.get(split, set())]
        new: list[ImageT] = []
        for image in images:
            if any(image.path in paths for paths in compared):
                self._repeated.append(image.path)
            else:
                new.append(image)
        stored_split = "" if len(self._files) == 1 else split
        self._images.setdefault(stored_split, []).extend(new)
        self._paths.setdefault(split, set()).update(image.path for image in images)
        if is_annotated:
            self._annotated.add(stored_split)
        return bool(new)

    def finish(self) -> dict[str, list[ImageT]]:
        """Return the images by split, and add the problems that concern all files to `problems`.

        Splits without annotations, such as the test images of challenges, are left out if other splits have
        annotations.
        """
        self.problems += self._find_image_problems()
        unannotated = [split for split in self._images if self._annotated and split not in self._annotated]
        for split in unannotated:
            images = self._images.pop(split)
            message = f"No image of the {split} split has annotations ({counted(len(images), 'image')})."
            self.problems.append(dataset_warning(message, "The split is not used; annotate its images to use it."))
        return self._images

    def _divide_by_split(self, names: Iterable[str], preferred: str) -> dict[str, list[str]]:
        """Return the names of the annotation files to read by split, and record a warning about the others.

        Of several files for a split, those with the word `preferred` in their names are read, if there are any.
        """
        groups: dict[tuple[str, str], list[str]] = {}  # by split and folder
        for name in sorted(names):
            groups.setdefault((split_of_file(name), os.path.dirname(name)), []).append(name)
        used: dict[str, list[str]] = {}
        unused: list[str] = []
        for split in _ORDER:
            for group in [group for (group_split, _), group in groups.items() if group_split == split]:
                chosen = [name for name in group if preferred in os.path.basename(name).lower()] or group
                if split == "" and "train" in used:  # files without a split are then not read
                    chosen = []
                else:
                    used.setdefault(split, []).extend(chosen)
                unused += [name for name in group if name not in chosen]
        if unused:
            are = "is" if len(unused) == 1 else "are"
            message = f"{count_sentence(unused, 'annotation file')} that {are} not used: {first_names(unused)}."
            used_names = first_names([name for group in used.values() for name in group])
            remedy = (
                f"Used are {used_names}. Put the word train, val or test into a file's name to use it for that split."
            )
            self.problems.append(dataset_warning(message, remedy))
        return used

    def _find_image_problems(self) -> Iterator[Problem]:
        """Yield problems with missing, ambiguous and repeated images. They are errors if no image was found."""
        make_problem = dataset_warning if self._are_found else dataset_error
        if self._missing:
            message = f"{count_sentence(self._missing, 'image')} named in the annotations but not in the folder"
            remedy = "Such images are left out; put them next to the annotations, or into a folder named images."
            yield make_problem(f"{message}: {first_names(self._missing)}.", remedy)
        if self._ambiguous:
            message = f"{count_sentence(self._ambiguous, 'name')} in the annotations that several images have"
            remedy = "Such names are left out; put the images' folders into the names."
            yield make_problem(f"{message}: {first_names(self._ambiguous)}.", remedy)
        remedy = "The annotations of the first file are used; merge the files to use all."
        yield from warn_about(self._repeated, "image", "annotated in several files:", remedy)
