"""Find the text file with the annotations of each image, in mirrored, nested or shared folders. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS
from engine.data.decoding.reading import Unfit, describe_failure, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Detection
from engine.data.formats.tree import Tree, split_of_folder, stem, unicode_key
from engine.data.splits import (
    abbreviate_names,
    count_sentence,
    dataset_warning,
    first_names,
    sample_evenly,
    warn_about,
    warn_unreadable,
)
from engine.system.format import counted
from engine.system.regular_files import UnusableFile

IMAGE_WORDS = frozenset({"images", "image", "imgs", "img", "jpegimages", "rgb", "inputs"})
LABEL_WORDS = frozenset({"labels", "label", "annotations", "annotation", "annfiles", "labeltxt", "txt", "txts"})
MAX_CANDIDATES = 10_000
"""Maximum number of files that are considered to detect a format. Some of them are opened."""
MAX_OPENED = 300
"""Maximum number of files that are opened to detect a format."""
ENOUGH_FILES = 60
"""Number of nonempty files after which no more files are opened to detect a format."""

T = TypeVar("T")


class Pair(NamedTuple):
    """Image and its annotation file, both as full paths. `text` is None if the image has no annotation file."""

    image: str
    text: str | None


@dataclass
class Parsed(Generic[T]):
    """Result of parsing a text file.

    Attributes:
        rows: Distinct objects in the order of their lines.
        faults: Descriptions of the unusable lines, such as "line 1 has 3 numbers".
        repeated: Number of lines that repeat an earlier line.
    """

    rows: list[T] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    repeated: int = 0


class TextFiles:
    """Search for the text files that describe images.

    A text file has the same name as its image. It is in the first of these folders that contains such a file: the
    folder with "labels" in its path where the image's path has "images" (labels/train/a.txt for images/train/a.jpg);
    the folder of the image; a folder of labels inside or next to a parent folder; or a single folder of labels for all
    images.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._names: dict[str, dict[str, str]] = {}  # text files by folder and name without extension
        self._searched: dict[str, list[str]] = {}  # folders to search, by folder of images
        self._pairs: dict[str, list[Pair]] = {}  # by folder of images

    def find(self, folder: str, name: str) -> str | None:
        """Return the full path of the text file for the image `name` in `folder`, or None if there is none.

        `folder` is relative to the dataset folder.
        """
        if folder not in self._searched:
            self._searched[folder] = list(filter(self._list_text_names, self._find_text_folders(folder)))
        for text_folder in self._searched[folder]:
            names = self._list_text_names(text_folder)
            for key in (stem(name), name):  # a.txt or a.jpg.txt for a.jpg
                if text_name := names.get(unicode_key(key)):
                    return self._tree.path(text_folder, text_name)
        return None

    def pair_images(self, folder: str) -> list[Pair]:
        """Return the images in `folder`, each with its text file."""
        if folder not in self._pairs:
            names = self._tree.images(folder)
            self._pairs[folder] = [Pair(self._tree.path(folder, name), self.find(folder, name)) for name in names]
        return self._pairs[folder]

    def _list_text_names(self, folder: str) -> dict[str, str]:
        """Return the names of the text files in `folder`, keyed by their names without extensions.

        Returns {} if the folder doesn't exist.
        """
        if folder not in self._names:
            files = self._tree.files(folder, ".txt") if folder == "" or self._tree.exists(folder) else []
            self._names[folder] = {unicode_key(os.path.splitext(name)[0]): name for name in files}
        return self._names[folder]

    def _find_text_folders(self, folder: str) -> list[str]:
        """Return the folders that may contain the text files for images in `folder`, most likely first.

        For example, the images in images/train may have text files in labels/train, images/train, images/train/labels,
        images/labels/train, labels/images/train or labels.
        """
        names = folder.split(os.sep) if folder else []
        mirrored: list[str] = []
        shared: list[str] = []
        siblings: list[str] = []
        for depth in reversed(range(len(names))):
            parent, inner = os.path.join("", *names[:depth]), names[depth + 1 :]
            for label_folder in self._find_label_folders(parent, split_tokens(names[depth], IMAGE_WORDS)):
                mirrored.append(os.path.join(parent, label_folder, *inner))
                for level in reversed(range(len(inner))):
                    # Text files next to images belong to these images, and those in subfolders may have the same names.
                    if self._tree.has_images(os.path.join(parent, names[depth], *inner[:level])):
                        break
                    shared.append(os.path.join(parent, label_folder, *inner[:level]))
        for depth in reversed(range(len(names) + 1)):
            parent = os.path.join("", *names[:depth])
            siblings += [os.path.join(parent, name, *names[depth:]) for name in self._find_label_folders(parent, ())]
        return list(dict.fromkeys([*mirrored, folder, *siblings, *shared]))

    def _find_label_folders(self, parent: str, tokens: tuple[str, ...]) -> list[str]:
        """Return the names of the folders in `parent` that may contain annotations, most likely first.

        A name consists of a word for annotations and the words `tokens`, such as "train" for "labels_train".
        """
        found = [
            name
            for name in self._tree.folders(parent)
            if is_label_folder(name) and split_tokens(name, LABEL_WORDS) == tokens
        ]
        return sorted(found, key=lambda name: ("label" not in name.lower(), name))


def split_tokens(name: str, tokens: frozenset[str]) -> tuple[str, ...]:
    """Return the lower-case words and the numbers in a name, except those in `tokens`."""
    return tuple(token for token in _find_tokens(name) if token not in tokens)


def is_label_folder(name: str) -> bool:
    """Return True if a folder's name contains a word for annotations."""
    return not LABEL_WORDS.isdisjoint(_find_tokens(name))


def find_image_folders(tree: Tree, folder: str = "") -> Iterator[str]:
    """Yield those folders that contain images, from `folder` and all folders below it.

    Folders with a name for annotations must also contain text files.
    """
    for current in tree.walk(folder):
        if tree.has_images(current):
            inner_names = current.removeprefix(folder).split(os.sep)
            if not any(map(is_label_folder, inner_names)) or tree.has(".txt", current):
                yield current


def pair_by_folder(tree: Tree, texts: TextFiles) -> dict[str, list[Pair]]:
    """Return the images in all annotated folders, grouped by split, or under "" if no folder belongs to a split.

    A folder is annotated if one of its images has a text file. If an annotated folder is inside a folder with a name
    for images, all folders of images inside the latter count as annotated, too. If any folder belongs to a split,
    images without a split are left out.
    """
    by_folder = {folder: texts.pair_images(folder) for folder in find_image_folders(tree)}
    annotated = {folder for folder, pairs in by_folder.items() if any(pair.text for pair in pairs)}
    roots = {root for folder in annotated if (root := _find_image_root(folder)) is not None}
    splits: dict[str, list[Pair]] = {}
    for folder, pairs in by_folder.items():
        if folder in annotated or _find_image_root(folder) in roots:
            splits.setdefault(split_of_folder(folder), []).extend(pairs)
    if splits.keys() - {""}:
        splits.pop("", None)
    return splits


def drop_unannotated_splits(splits: Mapping[str, list[Pair]]) -> tuple[dict[str, list[Pair]], list[Problem]]:
    """Return the splits with at least one text file, and warnings about the other splits."""
    annotated = {split: pairs for split, pairs in splits.items() if any(pair.text for pair in pairs)}
    problems: list[Problem] = []
    for split, pairs in splits.items():
        images = [pair.image for pair in pairs]
        if images and split not in annotated:
            count = f"{count_sentence(images, 'image')} and no annotations in the {split or 'only'} split"
            remedy = "The split is left out; add the files of its annotations."
            problems.append(dataset_warning(f"{count}: {first_names(images)}.", remedy))
    return annotated, problems


def drop_unannotated_images(splits: Mapping[str, list[Pair]]) -> tuple[dict[str, list[Pair]], list[Problem]]:
    """Return the splits with only those images that have a text file, and a warning about the other images."""
    unannotated = [pair.image for pairs in splits.values() for pair in pairs if pair.text is None]
    annotated = {split: [pair for pair in pairs if pair.text is not None] for split, pairs in splits.items()}
    if not unannotated:
        return annotated, []
    message = f"{count_sentence(unannotated, 'image')} without an annotation: {first_names(unannotated)}."
    remedy = "Such images are left out; add the files of their annotations under the same names."
    return annotated, [dataset_warning(message, remedy)]


def divide_by_lists(splits: Mapping[str, list[Pair]], lists: Mapping[str, frozenset[str]]) -> dict[str, list[Pair]]:
    """Divide all images into new splits, one for each list of names.

    `lists` holds the names of the images in each split, without extensions.
    """
    by_name = {stem(pair.image): pair for pairs in splits.values() for pair in pairs}
    return {split: [by_name[name] for name in sorted(names) if name in by_name] for split, names in lists.items()}


def read_annotated(
    tree: Tree,
    by_folder: Mapping[str, list[Pair]],
    splits: Mapping[str, list[Pair]],
    parse: Callable[[str], Parsed[T]],
    lists: frozenset[str],
) -> tuple[dict[str, list[tuple[str, list[T]]]], list[Problem]]:
    """Read the text files of the annotated images. Return each split's images with their objects, and all problems.

    `by_folder` and `splits` are the images before and after they were divided into splits. Files whose names are in
    `lists` do not describe an image.
    """
    used = {pair.text for pairs in by_folder.values() for pair in pairs if pair.text is not None}
    problems = [*check_pairs(tree, splits), *check_unused_files(tree, find_text_folders(tree, lists), used)]
    annotated, unannotated = drop_unannotated_images(splits)
    parsed, unreadable = read_texts(annotated, parse)
    return parsed, [*problems, *unannotated, *unreadable]


def check_pairs(tree: Tree, splits: Mapping[str, Sequence[Pair]]) -> list[Problem]:
    """Return warnings about the pairs of images and files in `splits`.

    They are about images in no split or in several splits, and about files that several images share.
    """
    in_split: dict[str, str] = {}  # split of each image
    repeated: list[str] = []
    images_by_text: dict[str, list[str]] = {}
    for split, pairs in splits.items():
        for pair in pairs:
            if in_split.setdefault(pair.image, split) != split:
                repeated.append(pair.image)
            elif pair.text is not None:
                images_by_text.setdefault(pair.text, []).append(pair.image)
    problems = [*_find_images_without_split(tree, in_split)]
    remedy = "Results on images that were trained on mean little; let each image be in one split only."
    problems += warn_about(repeated, "image", "in several splits:", remedy)
    shared = {text_file: images for text_file, images in images_by_text.items() if len(set(images)) > 1}
    if shared:
        text_file, images = next(iter(shared.items()))
        message = f"{count_sentence(list(shared), 'annotation file')} of several images, such as {first_names([text_file])} of {first_names(images)}."
        problems.append(dataset_warning(message, "All of them get its objects; rename those that it is not about."))
    return problems


def find_text_folders(tree: Tree, lists: frozenset[str]) -> dict[str, list[str]]:
    """Return the names of the text files that may describe images, keyed by folder.

    Files whose names are in `lists` are left out.
    """
    found: dict[str, list[str]] = {}
    for folder in tree.walk():
        if not tree.has(".txt", folder):
            continue
        names = [name for name in tree.files(folder, ".txt") if name.lower() not in lists]
        if not any(map(is_label_folder, folder.split(os.sep))):  # then only files named like an image count
            stems = {os.path.splitext(name)[0] for name in tree.images(folder)}
            names = [name for name in names if os.path.splitext(name)[0] in stems]
        if names:
            found[folder] = names
    return found


def describe_folders(folders: Mapping[str, Sequence[str]]) -> str:
    """Describe folders of text files for users: "40 text files in labels/train, labels/val"."""
    largest = sorted(folders, key=lambda folder: -len(folders[folder]))
    names = abbreviate_names([name or "the folder itself" for name in largest])
    return f"{counted(sum(map(len, folders.values())), 'text file')} in {names}"


def parse_lines(
    path: str, parse_line: Callable[[str, int], T | None], key: Callable[[T], Any] | None = None
) -> Parsed[T]:
    """Parse a text file line by line. Raises UnusableFile or OSError.

    Args:
        path: Full path.
        parse_line: Function that returns the object in a line, given the text and number of the line, or None if it
            describes no object. It may raise Unfit.
        key: Function that returns the same value for repeated objects, or None to compare the objects themselves.
    """
    found = Parsed[T]()
    visited: set[Any] = set()
    text = read_text(path)
    with refuse_unusable(path):
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = parse_line(line, number)
            except Unfit as error:
                found.faults.append(str(error))
                continue
            if row is None:
                continue
            identity = row if key is None else key(row)
            if identity in visited:
                found.repeated += 1
            else:
                visited.add(identity)
                found.rows.append(row)
    return found


def detect_texts(
    tree: Tree, lists: frozenset[str], parse: Callable[[str], Parsed[T]], kinds: tuple[str, ...], lines: str
) -> list[Detection]:
    """Detect a format with one text file per image. Returns [] if `parse` can't use most of a sample of the files.

    Args:
        tree: Listing of the dataset.
        lists: Names of text files that do not describe a single image.
        parse: Function that returns the objects in a file.
        kinds: Kinds of annotations, the most detailed first.
        lines: Description of the lines, for the evidence.
    """
    if not any(map(tree.has_images, tree.walk())):
        return []
    folders = find_text_folders(tree, lists)
    paths = [tree.path(folder, name) for folder, names in folders.items() for name in names]
    fraction = measure_usable_fraction(parse_sample(paths, parse))
    if fraction < 0.5:
        return []
    confidence = Confidence.CERTAIN if fraction >= 0.9 else Confidence.LIKELY
    return [Detection(kinds, confidence, (describe_folders(folders), lines))]


def parse_sample(paths: Sequence[str], parse: Callable[[str], Parsed[T]]) -> list[tuple[str, Parsed[T]]]:
    """Parse some evenly spaced text files and return each path with the result. Empty files are left out.

    Raises UnusableFile if a file is malformed and no other file can be used.
    """
    found: list[tuple[str, Parsed[T]]] = []
    first_unusable: UnusableFile | None = None
    opened = 0
    # Files from the beginning, the middle and the end are opened first, since neighbors are often alike.
    candidates = sample_evenly(paths, MAX_CANDIDATES)
    step = max(len(candidates) // ENOUGH_FILES, 1)
    for path in (path for start in range(step) for path in candidates[start::step]):
        if len(found) >= ENOUGH_FILES or opened >= MAX_OPENED:
            break
        try:
            is_empty = os.path.isfile(path) and not os.path.getsize(path)  # a FIFO, which can't be parsed, is not empty
            if is_empty:
                continue
            opened += 1
            parsed = parse(path)
        except UnusableFile as error:
            first_unusable = first_unusable or error
        except OSError:
            continue
        else:
            if parsed.rows or parsed.faults:
                found.append((path, parsed))
    if first_unusable is not None and not found:
        raise first_unusable
    return found


def measure_usable_fraction(files: Sequence[tuple[str, Parsed[T]]]) -> float:
    """Return the fraction of parsed files with at least as many usable as unusable lines.

    Returns 0 if there are no files.
    """
    return sum(len(parsed.rows) >= len(parsed.faults) for _, parsed in files) / len(files) if files else 0.0


def read_texts(
    splits: Mapping[str, Sequence[Pair]], parse: Callable[[str], Parsed[T]]
) -> tuple[dict[str, list[tuple[str, list[T]]]], list[Problem]]:
    """Read the text files of all images.

    Returns the images of each split with their objects, sorted by path, and the problems in the files. Images without a
    text file, or with an empty one, have no objects. An image is left out if its file can't be read, or has faults and
    no usable line.
    """
    read: dict[str, list[tuple[str, list[T]]]] = {split: [] for split in splits}
    faults: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []
    repeated: list[str] = []
    for split, pairs in splits.items():
        for image, text in sorted(pairs):
            if text is None:
                read[split].append((image, []))
                continue
            try:
                parsed = parse(text)
            except (OSError, UnusableFile) as error:
                left_out.append((text, describe_failure(error)))
                continue
            if parsed.faults and not parsed.rows:
                left_out.append((text, parsed.faults[0]))
                continue
            faults += [(text, fault) for fault in parsed.faults]
            repeated += [text] * parsed.repeated
            read[split].append((image, parsed.rows))
    remedy = "Images with such annotations are left out; export the annotations again."
    problems = warn_unreadable(left_out, "annotation", remedy)
    problems += warn_unreadable(faults, "line", "Such lines are left out; correct the files.")
    remedy = "Such lines are used once; remove the repetitions."
    problems += warn_about(repeated, "line", "repeating another of the same file:", remedy)
    return read, problems


def check_unused_files(tree: Tree, folders: Mapping[str, Sequence[str]], used: Set[str]) -> list[Problem]:
    """Return a warning about text files that belong to no image, or [] if there are none.

    `folders` holds the names of all text files by folder, and `used` the full paths of those that belong to an image.
    """
    paths = [tree.path(folder, name) for folder, names in folders.items() for name in names]
    unused = [path for path in paths if path not in used]
    remedy = "Such annotations are not used; give image and annotation the same name."
    return warn_about(unused, "annotation", "without an image:", remedy)


def _find_images_without_split(tree: Tree, in_split: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning about images in no split. `in_split` maps the full paths of the other images to their splits."""
    paths = map(tree.path, tree.find(tuple(EXTENSIONS)))
    images = [path for path in paths if path not in in_split]
    if images:
        folders = sorted({tree.within(os.path.dirname(path)) or "the dataset's folder" for path in images})
        names = f"{first_names(images)}, in {abbreviate_names(folders)}"
        message = f"{count_sentence(images, 'image')} in no split: {names}."
        remedy = "Such images are left out; move them to a folder of a split, or name them in its list."
        yield dataset_warning(message, remedy)


def _find_image_root(folder: str) -> str | None:
    """Return the path of the last folder in the path `folder` that is named for images, or None if there is none."""
    names = folder.split(os.sep)
    depths = [depth for depth, name in enumerate(names) if not IMAGE_WORDS.isdisjoint(_find_tokens(name))]
    return os.path.join(*names[: depths[-1] + 1]) if depths else None


def _find_tokens(name: str) -> list[str]:
    """Return the lower-case words and the numbers in a name, except a version number such as "-v1.5"."""
    return re.findall(r"[^\W\d_]+|\d+", re.sub(r"[-_. ]v\d+(\.\d+)*", " ", name.lower()))
