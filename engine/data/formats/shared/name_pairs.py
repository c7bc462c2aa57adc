"""Pair images with their annotation files by name. Torch-free."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.formats.shared.instances import InstanceSplit, Source
from engine.data.formats.tree import Tree, split_in, stem, suffix, unicode_key
from engine.data.splits import MaskSplit, count_sentence, dataset_warning, first_names, warn_about

_SEPARATORS = "_-. ()"


@dataclass
class Pairs:
    """Result of pairing images with annotation files. All lists hold full paths and are sorted by image.

    Attributes:
        matched: Images with their files.
        unmatched_images: Images without a file.
        unmatched_files: Files without an image.
        several: Images with more than one file. None of these files is used.
        same_name: Images whose names differ only in the extension or the folder, so that the image of a file is
            unclear.
        missing: Names of images that a list of the dataset, such as train.txt, contains but that don't exist.
    """

    matched: list[tuple[str, str]] = field(default_factory=list)
    unmatched_images: list[str] = field(default_factory=list)
    unmatched_files: list[str] = field(default_factory=list)
    several: list[str] = field(default_factory=list)
    same_name: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def join(cls, results: Iterable[Pairs]) -> Pairs:
        """Combine several results, such as those from several folders."""
        joined = cls()
        for each in results:
            joined.add(each)
        return joined

    def add(self, other: Pairs) -> None:
        """Append the pairs of images and annotation files from another folder."""
        for each in fields(self):
            getattr(self, each.name).extend(getattr(other, each.name))

    def select_folders(self, folders: Collection[str]) -> Pairs:
        """Return only the pairs whose images are in the given folders. Files without an image are left out."""
        return Pairs(
            [(image, file) for image, file in self.matched if os.path.dirname(image) in folders],
            [path for path in self.unmatched_images if os.path.dirname(path) in folders],
            several=[path for path in self.several if os.path.dirname(path) in folders],
            same_name=[path for path in self.same_name if os.path.dirname(path) in folders],
        )

    @property
    def images(self) -> list[str]:
        """Images of the matched pairs."""
        return [image for image, _ in self.matched]

    @property
    def files(self) -> list[str]:
        """Annotation files of the matched pairs, in the same order as `images`."""
        return [file for _, file in self.matched]

    @property
    def file_count(self) -> int:
        """Number of annotation files, with or without an image."""
        return len(self.matched) + len(self.unmatched_files)

    def describe_unpaired(self, one: str, many: str) -> list[Problem]:
        """Return warnings about images and files without a counterpart.

        `one` and `many` name the annotations in messages, such as "a mask" and "masks".
        """
        found = []
        remedy = "Such images are left out; add them to the folder, or remove them from the list."
        found += warn_about(self.missing, "image", "named in a list but not in the folder:", remedy)
        remedy = f"Such images are left out; add their {many} under the same names."
        found += warn_about(
            self.unmatched_images, "image", f"in {_name_folders(self.unmatched_images)} without {one}:", remedy
        )
        if self.unmatched_files:
            files = count_sentence(self.unmatched_files, f"file of {many}", f"files of {many}")
            message = f"{files} in {_name_folders(self.unmatched_files)} without an image: {first_names(self.unmatched_files)}."
            found.append(dataset_warning(message, f"Such files are not used; give image and {many} the same name."))
        remedy = f"Such images are left out; merge the {many} of an image into one file."
        found += warn_about(self.several, "image", f"with several files of {many}:", remedy)
        remedy = f"Such images are left out; give each image, with its {many}, a name of its own."
        found += warn_about(self.same_name, "image", "of the same name as another:", remedy)
        return found


def make_mask_splits(splits: Mapping[str, Pairs]) -> dict[str, MaskSplit]:
    """Convert pairs of images and masks to splits with a mask for each image."""
    return {name: MaskSplit(pairs.images, pairs.files) for name, pairs in splits.items()}


def make_instance_splits(splits: Mapping[str, Pairs], source: Callable[[str], Source]) -> dict[str, InstanceSplit]:
    """Convert pairs of images and masks to splits of outlined objects.

    `source` returns the source of instances for the path of a mask.
    """
    return {name: InstanceSplit(pairs.images, list(map(source, pairs.files))) for name, pairs in splits.items()}


def pair_folders(
    tree: Tree, images: Iterable[str], annotations: str, endings: Sequence[str], suffixes: Sequence[str]
) -> Pairs:
    """Pair the images in some folders with their annotation files in another folder.

    Args:
        tree: Listing of the dataset.
        images: Folders of images, relative to the dataset folder.
        annotations: Folder with the annotation files.
        endings: Extensions of these files. If several have the same name, the one with the first extension is used.
        suffixes: Texts that may follow the name of the image in the names of these files, such as "_mask" or "".
    """
    paths = [os.path.join(folder, name) for folder in images for name in tree.images(folder)]
    return _pair(tree, sorted(paths), annotations, _index_files(tree, annotations, endings), suffixes)


def pair_in_one_folder(tree: Tree, folder: str, endings: Sequence[str], chosen: str, suffixes: Sequence[str]) -> Pairs:
    """Pair the images in a folder with the annotation files in the same folder that have the suffix `chosen`.

    Files with a different one of the `suffixes` are ignored. A suffix may be followed by a number: NAME_mask_1 has the
    suffix "_mask". `endings` are the possible extensions of images and annotation files.
    """
    lower_suffixes = tuple(each.lower() for each in suffixes)
    names = [name for name in tree.files(folder) if suffix(name) in endings]
    annotations = {stem(name): name for name in names if _remove_number(stem(name)).lower().endswith(chosen.lower())}
    others = [name for name in names if not _remove_number(stem(name)).lower().endswith(lower_suffixes)]
    paths = [os.path.join(folder, name) for name in others if is_image(name)]
    files = dict(zip(_make_keys(list(annotations)), annotations.values(), strict=True))
    return _pair(tree, paths, folder, files, (chosen,))


def _pair(
    tree: Tree, paths: Sequence[str], annotations: str, files: Mapping[str, str], suffixes: Sequence[str]
) -> Pairs:
    """Pair the images `paths` with files in the folder `annotations`. All paths are relative to the dataset folder.

    `files` are the names of these files, keyed by the results of `_make_keys`.
    """
    keys = _make_keys([stem(path) for path in paths])
    file_keys = match_names(keys, list(files), suffixes)  # key of the file for each key of an image
    pairs = Pairs()
    used_keys: set[str] = set()
    counts = Counter(keys)
    numbered_copies = _find_numbered_copies(files, set(file_keys.values()))
    for path, key in zip(paths, keys, strict=True):
        file_key = file_keys.get(key)
        if file_key is None:
            pairs.unmatched_images.append(tree.path(path))
        elif counts[key] > 1:
            pairs.same_name.append(tree.path(path))
        elif file_key in numbered_copies:
            pairs.several.append(tree.path(path))
        else:
            pairs.matched.append((tree.path(path), tree.path(annotations, files[file_key])))
        if file_key is not None:
            used_keys.add(file_key)
    used_keys.update(key for keys_of_copies in numbered_copies.values() for key in keys_of_copies)
    pairs.unmatched_files = [tree.path(annotations, name) for key, name in files.items() if key not in used_keys]
    return pairs


def match_names(images: Sequence[str], files: Sequence[str], suffixes: Sequence[str]) -> dict[str, str]:
    """Match the names of images with the names of annotation files, all without extensions.

    Returns the name of the file for each image that has one. A file is named like its image, followed by one of
    `suffixes`. If few files match, words at the beginning and end that all images, or all files, have in common are
    removed, as in DRIVE's 21_training and 21_manual1. The remaining names must then be equal.
    """
    file_names = set(files)
    matches: dict[str, str] = {}
    for name in images:
        possible_names = [*(name + each.lower() for each in suffixes), *(name + each for each in suffixes)]
        existing_names = [possible for possible in possible_names if possible in file_names]
        if existing_names:
            matches[name] = existing_names[0]
    fewer = min(len(images), len(files))
    enough = (fewer + 1) // 2  # half of them
    if len(matches) >= enough or fewer < 2:  # a single name shows no words that names have in common
        return matches
    more_matches = max(_match_without_common_words(images, files), key=len, default={})
    return more_matches if len(more_matches) >= max(enough, len(matches) + 1) else matches


def _match_without_common_words(images: Sequence[str], files: Sequence[str]) -> Iterable[dict[str, str]]:
    """Yield the matches after removing common prefixes, common suffixes, both, or neither from all names."""
    image_prefix, image_suffix = _find_common_affixes(images)
    file_prefix, file_suffix = _find_common_affixes(files)
    image_splits = {split_in(image_prefix), split_in(image_suffix)} - {""}
    file_splits = {split_in(file_prefix), split_in(file_suffix)} - {""}
    if image_splits and file_splits and image_splits != file_splits:
        return  # for example, training images and masks for validation

    for removes_prefix, removes_suffix in product((False, True), repeat=2):
        image_lengths = len(image_prefix) * removes_prefix, len(image_suffix) * removes_suffix
        file_lengths = len(file_prefix) * removes_prefix, len(file_suffix) * removes_suffix
        image_rests, file_rests = _shorten(images, *image_lengths), _shorten(files, *file_lengths)
        if len(image_rests) == len(images) and "" not in image_rests and "" not in file_rests:
            yield {name: file_rests[rest] for rest, name in image_rests.items() if rest in file_rests}


def _shorten(names: Sequence[str], prefix_length: int, suffix_length: int) -> dict[str, str]:
    """Return `names`, keyed by what remains of them after removing a prefix and a suffix of the given lengths."""
    return {name[prefix_length : len(name) - suffix_length]: name for name in names}


def _find_common_affixes(names: Sequence[str]) -> tuple[str, str]:
    """Return the longest prefix and the longest suffix that all names share, in full words."""
    return _find_common_beginning(names), _find_common_beginning([name[::-1] for name in names])[::-1]


def _find_common_beginning(names: Sequence[str]) -> str:
    """Return the longest prefix that all names share, in full words.

    It does not end with digits, since these number the files.
    """
    beginning = os.path.commonprefix(names).rstrip("0123456789")  # noqa: RUF071 - the names are not paths
    if not beginning or beginning[-1] in _SEPARATORS:  # it ends between two words
        return beginning
    if all(name[len(beginning) : len(beginning) + 1].isdigit() for name in names):
        return beginning  # only numbers follow
    return beginning[: 1 + max(beginning.rfind(each) for each in _SEPARATORS)]


def _find_numbered_copies(files: Mapping[str, str], matched: set[str]) -> dict[str, list[str]]:
    """Return the keys of numbered files about the same image as a matched file, such as NAME_mask_1 for NAME_mask.

    They are listed by the key of the matched file. `matched` are the keys in `files` that are paired with an image.
    """
    found: dict[str, list[str]] = {}
    for key in files:
        base = _remove_number(key)
        if base != key and base in matched and key not in matched:
            found.setdefault(base, []).append(key)
    return found


def _index_files(tree: Tree, folder: str, endings: Sequence[str]) -> dict[str, str]:
    """Return the files in `folder` with one of the extensions `endings`, keyed by the results of `_make_keys`.

    Of several files that differ only in the extension, the one with the first extension is returned.
    """
    names = [name for name in tree.files(folder) if suffix(name) in endings]
    names.sort(key=lambda name: (endings.index(suffix(name)), name))
    by_stem: dict[str, str] = {}
    for name in names:
        by_stem.setdefault(os.path.splitext(name)[0], name)
    return dict(sorted(zip(_make_keys(list(by_stem)), by_stem.values(), strict=True)))


def _make_keys(stems: Sequence[str]) -> list[str]:
    """Return the file names `stems` in one Unicode form, and in lower case unless this makes two of them equal."""
    plain = list(map(unicode_key, stems))
    lower = [stem.lower() for stem in plain]
    return lower if len(set(lower)) == len(set(plain)) else plain


def _remove_number(stem: str) -> str:
    """Remove a number at the end of a name: NAME_mask_1 becomes NAME_mask."""
    return re.sub(r"[_\-. ]\d+$", "", stem)


def _name_folders(paths: Sequence[str]) -> str:
    """Return the names of the first folders that contain the files `paths`, for messages."""
    return first_names([os.path.dirname(path) for path in paths])
