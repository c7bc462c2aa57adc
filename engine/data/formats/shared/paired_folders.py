"""Find folders of images and the folders of their annotations, in many layouts. Torch-free.

The names of the folders on two paths are compared after removing words such as "images" and "masks". In this way
train/images belongs to train/masks, images/train to masks/train, and train to trainannot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.data.formats.shared.name_pairs import Pairs, pair_folders, pair_in_one_folder
from engine.data.formats.tree import Tree, split_in, split_named

IMAGE_WORDS = frozenset({
    "images", "image", "imgs", "img", "jpegimages", "pngimages", "rgb", "input", "inputs", "image_2", "original",
    "originals", "photo", "photos", "picture", "pictures", "frames", "sat",
})  # fmt: skip
_GLUED_IMAGE_WORDS = ("images", "image", "imgs", "img", "input", "data")
"""Words for images that may be attached to the name of a split: train_images, ISIC2018_Task1-2_Training_Input."""
_ENDING_WORD = re.compile(r"_(png|jpg|jpeg|tif|tiff|bmp|npy)$")
_SPLIT_SHORT = {"tr": "train", "te": "test"}
MAX_FOLDERS = 100_000
"""Maximum number of folders in a dataset that are searched."""
MAX_SIBLINGS = 20
"""Maximum number of folders next to an annotation folder that are tried as image folders."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Roles:
    """Names of folders and files that contain one kind of annotations.

    Attributes:
        words: Names of the folders, in lower case with "_" between words.
        glued: Words that may be attached to other words in the name of a folder, such as "annot" in trainannot.
        endings: Extensions of the files, the preferred one first.
        suffixes: Texts that may follow the name of the image in the names of the files, such as "_mask" or "".
        image_folder_suffixes: Those `suffixes` that are possible for files in the same folder as the images.
        excluded_words: If None, the name of a folder must contain one of `words`. Otherwise, folders with any name are
            considered, except those that contain one of these words.
    """

    words: frozenset[str]
    glued: tuple[str, ...]
    endings: tuple[str, ...]
    suffixes: tuple[str, ...]
    image_folder_suffixes: tuple[str, ...] = ()
    excluded_words: tuple[str, ...] | None = None


@dataclass
class Candidate:
    """Possible pairing of images with annotation files.

    Attributes:
        variant: Name of the annotation folder without the name of the split. It is the suffix of the annotation files
            if these are in the image folders.
        splits: Pairs of images and files of each split: "train", "val", "test", or "" for pairs without a split.
        folders: Annotation folders, relative to the dataset folder.
        is_named: True if the annotation folder has one of the usual names for such annotations.
        folders_without_pairs: Image folders without such annotations.
    """

    variant: str
    splits: dict[str, Pairs] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    is_named: bool = True
    folders_without_pairs: list[str] = field(default_factory=list)

    @property
    def pairs(self) -> Pairs:
        """Pairs of images and annotation files of all splits together."""
        return Pairs.join(self.splits.values())

    def add(self, split: str, pairs: Pairs, folder: str) -> None:
        """Add pairs of images and files to a split. `folder` is the annotation folder that contains the files."""
        self.splits.setdefault(split, Pairs()).add(pairs)
        self.folders.append(folder)


class _PathName(NamedTuple):
    """Name of one folder on the path to a file, divided into words.

    Attributes:
        role: "images" or "annotations" if the name contains a word for these, otherwise "".
        role_word: Word that gives the role.
        without_role: Name without this word.
        name: Full name.
    """

    role: str
    role_word: str
    without_role: str
    name: str


class _Folder(NamedTuple):
    """Folder that contains files, given by its `path`, and the `names` of all folders on the path."""

    path: str
    names: tuple[_PathName, ...]

    @property
    def role(self) -> str:
        """Role, "images" or "annotations", of the last folder on the path that has one, or "" if none has."""
        return next((name.role for name in reversed(self.names) if name.role), "")

    @property
    def key(self) -> Key:
        """Names of the folders on the path, without words for roles.

        Names that consist only of such a word are left out. Names of splits are written uniformly.
        """
        return tuple(split_named(name.without_role) or name.without_role for name in self.names if name.without_role)

    @property
    def bare_key(self) -> Key:
        """Names on the path without words for roles and without additional words, such as "Ped" in "PedMasks".

        Words for a split are not removed.
        """
        return tuple(
            split_named(name.without_role) or name.without_role
            for name in self.names
            if name.without_role and (name.role != "annotations" or _find_split(name.without_role))
        )

    @property
    def split(self) -> str:
        """Split that the first folder name for a split on the path denotes, or "" if none does."""
        for name in self.names:
            # A split may be one of several words, but only next to a word for a role, as in "train_masks".
            split = split_named(name.without_role) or (_find_split(name.without_role) if name.role else "")
            if split:
                return split
        return ""

    def variant(self, *, with_words: bool) -> str:
        """Return the name of the annotations in this folder, which is the same for all splits.

        With `with_words`, additional words in the name of the folder are a part of it.
        """
        return "/".join(
            name.name if with_words and not _find_split(name.without_role) else name.role_word
            for name in self.names
            if name.role == "annotations"
        )


def find_candidates(tree: Tree, roles: Roles) -> list[Candidate]:
    """Return the folders that may contain annotations of images, recognized by the words and extensions in `roles`.

    Folders with usual names come first, and of these, the ones with most pairs.
    """
    folders = list(_iterate_folders_with_files(tree, roles))
    images = [folder for folder in folders if folder.role == "images" and tree.has_images(folder.path)]
    others = [folder for folder in folders if folder.role == "" and tree.has_images(folder.path)]
    collector = _CandidateCollector(tree, roles)
    index = _Index(images, others)
    for folder in folders:
        if folder.role == "annotations" and tree.has(roles.endings, folder.path):
            collector.pair_folder(folder, index)
    if roles.excluded_words is not None:
        for folder, partner in _pair_siblings(images, others, roles.excluded_words):
            collector.add(_find_differing_name(folder, partner), folder, [partner], is_named=False)
    candidates = [*collector.found.values(), *_find_in_image_folders(tree, roles, [*images, *others])]
    for candidate in candidates:
        taken = collector.used.get(candidate.variant)
        if taken:  # otherwise its files are in the image folders
            candidate.folders_without_pairs = [folder.path for folder in images if folder.path not in taken]
    return sorted(candidates, key=lambda each: (not each.is_named, -len(each.pairs.matched), each.variant))


class _Index:
    """Index of image folders by their keys, by the beginnings of their keys, and by their parent folders.

    `images` are the folders with a name for images. `others` also contain images, but their names mean neither images
    nor annotations. See `_Folder.key` for the keys: that of "city/images/train" is ("city", "train").
    """

    def __init__(self, images: Sequence[_Folder], others: Sequence[_Folder]) -> None:
        self._images_by_key: dict[Key, list[_Folder]] = {}
        self._others_by_key: dict[Key, list[_Folder]] = {}
        self._by_key_above: dict[Key, list[_Folder]] = {}  # folders by the keys of folders above them
        self._others_by_parent: dict[str, list[_Folder]] = {}  # by the path of the parent folder
        for folder in images:
            self._images_by_key.setdefault(folder.key, []).append(folder)
            for length in range(len(folder.key)):
                self._by_key_above.setdefault(folder.key[:length], []).append(folder)
        for folder in others:
            self._others_by_key.setdefault(folder.key, []).append(folder)
            # Of folders without a name for images, only splits belong to the annotations above them.
            if folder.key and split_named(folder.key[-1]):
                self._by_key_above.setdefault(folder.key[:-1], []).append(folder)
            self._others_by_parent.setdefault(os.path.dirname(folder.path), []).append(folder)

    def find_partners(self, folder: _Folder) -> Iterator[tuple[list[_Folder], bool]]:
        """Yield lists of folders that may contain the images for an annotation folder, most likely first.

        Each list comes with True if additional words in the name of the annotation folder belong to the name of the
        annotations, such as "Ped" in "PedMasks".
        """
        for by_key in (self._images_by_key, self._others_by_key):
            # `key` contains the additional words, `bare_key` doesn't.
            for key in dict.fromkeys((folder.key, folder.bare_key)):
                if key in by_key:
                    yield by_key[key], key != folder.key
        # For masks in "city/masks", these are images in folders such as "city/images/train".
        if folders_below := self._by_key_above.get(folder.key):
            yield folders_below, False

    def find_siblings(self, folder: _Folder) -> Sequence[_Folder]:
        """Return up to `MAX_SIBLINGS` of the `others` that are in the same parent folder as an annotation folder."""
        return self._others_by_parent.get(os.path.dirname(folder.path), ())[:MAX_SIBLINGS]


class _CandidateCollector:
    """Collector of candidates, and of the image folders that they use.

    Candidates are keyed by their variant (the name of the annotations) and by `is_named`, which is True if the
    annotation folder has a usual name.
    """

    def __init__(self, tree: Tree, roles: Roles) -> None:
        self.found: dict[tuple[str, bool], Candidate] = {}  # by variant and `is_named`
        self.used: dict[str, set[str]] = {}  # paths of image folders by variant
        self._tree = tree
        self._roles = roles

    def pair_folder(self, folder: _Folder, index: _Index) -> None:
        """Pair an annotation folder with image folders and add the result to the candidates.

        Of the folders that may contain the images, the first ones with matching files are used. If there are none, a
        candidate is added for every sibling folder with matching files.
        """
        for partners, with_words in index.find_partners(folder):
            if self.add(folder.variant(with_words=with_words), folder, partners, is_named=True):
                return
        siblings = [each for each in index.find_siblings(folder) if self._pair([each], folder).matched]
        for each in siblings:
            variant = folder.variant(with_words=True)
            name = os.path.basename(each.path)
            self.add(variant if len(siblings) == 1 else f"{variant} of {name}", folder, [each], is_named=True)

    def add(self, variant: str, folder: _Folder, partners: Sequence[_Folder], *, is_named: bool) -> bool:
        """Add the pairs of an annotation folder and the image folders `partners` to the candidate `variant`.

        Returns False if no file names match.
        """
        pairs = self._pair(partners, folder)
        if not pairs.matched:
            return False
        candidate = self.found.setdefault((variant, is_named), Candidate(variant, is_named=is_named))
        by_split: dict[str, set[str]] = {}
        for each in partners:
            by_split.setdefault(each.split or folder.split, set()).add(self._tree.path(each.path))
        for split, paths in by_split.items():
            candidate.add(split, pairs.select_folders(paths), folder.path)
        # The split of files without an image is unknown. They are counted once, in the first split.
        first_split = next(iter(by_split))
        candidate.splits[first_split].unmatched_files += pairs.unmatched_files
        self.used.setdefault(variant, set()).update(each.path for each in partners)
        return True

    def _pair(self, partners: Sequence[_Folder], folder: _Folder) -> Pairs:
        """Pair the images in the folders `partners` with the files in an annotation folder by name."""
        folders = [each.path for each in partners]
        return pair_folders(self._tree, folders, folder.path, self._roles.endings, self._roles.suffixes)


def _pair_siblings(
    images: Sequence[_Folder], others: Sequence[_Folder], excluded_words: Sequence[str]
) -> Iterator[tuple[_Folder, _Folder]]:
    """Yield each folder of `others` together with an image folder if their paths differ in a single name.

    That name must mean "images" in the path of the image folder, and must not be a split in the other path. Folders
    with one of the `excluded_words` in their path are left out.
    """
    patterns: dict[tuple[Key, Key], _Folder] = {}  # image folders by their paths without one name
    for folder in images:
        for pattern in _drop_each_name(folder):
            patterns.setdefault(pattern, folder)
    for folder in others:
        if any(excluded in folder.path.lower() for excluded in excluded_words):
            continue
        for position, pattern in enumerate(_drop_each_name(folder)):
            partner = patterns.get(pattern)
            if partner is None or partner.names[position].role != "images":
                continue
            if not split_named(folder.names[position].name):
                yield folder, partner
                break


def _drop_each_name(folder: _Folder) -> Iterator[tuple[Key, Key]]:
    """Yield, for each folder on the path, the names of the folders before it and of those after it."""
    names = tuple(each.name for each in folder.names)
    return ((names[:position], names[position + 1 :]) for position in range(len(names)))


def _find_differing_name(folder: _Folder, partner: _Folder) -> str:
    """Return the first folder name on the path of `folder` that differs from the path of its image folder `partner`."""
    pairs = zip(folder.names, partner.names, strict=True)
    return next(name.name for name, partner_name in pairs if name.name != partner_name.name)


def _find_in_image_folders(tree: Tree, roles: Roles, folders: Sequence[_Folder]) -> Iterator[Candidate]:
    """Yield candidates for annotations in the same folders as the images, one for each suffix."""
    if not roles.image_folder_suffixes:
        return
    lower_suffixes = tuple(each.lower() for each in roles.image_folder_suffixes)
    found: dict[str, Candidate] = {}
    for folder in folders:
        # All names are in one bytes object, since there may be a million. A suffix that always has a number behind it,
        # as in NAME_mask_1.png, is not found here.
        names = tree.listing(folder.path).names.lower()
        for suffix in (each for each in lower_suffixes if os.fsencode(f"{each}.") in names):
            pairs = pair_in_one_folder(tree, folder.path, roles.endings, suffix, roles.image_folder_suffixes)
            if pairs.matched:
                candidate = found.setdefault(suffix, Candidate(suffix))
                candidate.add(folder.split, pairs, folder.path)
    yield from found.values()


def _iterate_folders_with_files(tree: Tree, roles: Roles) -> Iterator[_Folder]:
    """Yield the first `MAX_FOLDERS` folders of a dataset, leaving out those without images or annotation files."""
    for number, folder in enumerate(tree.walk()):
        if number == MAX_FOLDERS:
            return
        if tree.has_images(folder) or tree.has(roles.endings, folder):
            yield _Folder(folder, tuple(_parse_name(name, roles) for name in folder.split(os.sep) if name))


def _parse_name(name: str, roles: Roles) -> _PathName:
    """Divide the name of a folder into the word for its role, such as "masks", and the other words."""
    plain = _ENDING_WORD.sub("", _normalize(name))
    if plain in roles.words:
        return _PathName("annotations", name, "", name)
    if plain in IMAGE_WORDS:
        return _PathName("images", name, "", name)
    for role, words in (("annotations", roles.glued), ("images", _GLUED_IMAGE_WORDS)):
        for word in words:
            without_role = _remove_word(plain, word)
            is_role = word != "data" or _find_split(without_role) != ""  # "data" means images only next to a split
            if without_role and is_role:
                return _PathName(role, word, without_role, name)
    return _PathName("", "", plain, name)


def _normalize(name: str) -> str:
    """Return a folder name in lower case with "_" between words.

    The numbers of tasks and parts are removed from ISIC's names, since they differ between images and masks.
    """
    plain = re.sub(r"[ .\-]", "_", name.lower())
    if plain.startswith("isic"):
        plain = re.sub(r"_(task|part)\d(_\d)?", "", plain)
    return plain


def _remove_word(plain: str, word: str) -> str:
    """Return a name without `word` at its end or beginning, or "" if the word is at neither place."""
    if plain.endswith(word):
        return plain.removesuffix(word).rstrip("_")
    return plain.removeprefix(word + "_") if plain.startswith(word + "_") else ""


def _find_split(words: str) -> str:
    """Return the split that a word in `words` denotes, or "" if none does.

    The last word may also be an abbreviation: "tr" or "te".
    """
    return split_in(words) or _SPLIT_SHORT.get(words.rpartition("_")[2], "")
