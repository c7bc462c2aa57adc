"""Evidence that folders of images are not classes, from the names and contents of folders and files. Torch-free."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import combinations, islice

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import decode_header, read_image
from engine.data.formats.shared.mask_sample import are_label_images
from engine.data.formats.tree import Tree, split_named, stem, suffix
from engine.data.splits import abbreviate_names, printable, sample_evenly
from engine.system.format import counted

_ROLES = frozenset(
    {
        "images", "image", "imgs", "img", "jpegimages", "pngimages", "photos", "rgb", "original", "originals",
        "masks", "labels", "label", "annotations", "annotation", "annots", "gt", "groundtruth", "ground truth", "truth",
        "segmentations", "segmentation", "segmentationclass", "segmentationobject", "semantic", "instances", "trimaps",
        "depth", "depths", "disparity", "flow", "leftimg8bit", "gtfine", "gtcoarse", "xmls", "json", "labeltxt", "edges",
        "query", "pred", "preds", "prediction", "predictions", "unlabeled", "unlabelled",
    }
)  # fmt: skip
"""Folder names that describe the purpose of files rather than the content of images."""
_PAIRED_ROLES = frozenset({"left", "right", "mask", "input", "output", "target", "before", "after", "ir", "visible"})
"""Folder names that may be classes. They denote roles only if two such folders contain files with the same names."""
_LEADING_ROLES = frozenset({"annotations", "annots", "groundtruth", "labels", "masks", "segmentations"})
"""Words that denote a role also at the beginning of a longer folder name, such as "labels-ah"."""
_PART_WORDS = frozenset({
    "archive", "batch", "chunk", "clip", "data", "dataset", "fold", "folder", "frames", "image", "images", "img", "imgs",
    "part", "scene", "seq", "sequence", "session", "shard", "split", "subset", "tile", "video",
})  # fmt: skip
"""Words in the names of numbered folders that are parts of a dataset, such as "part_1" and "part_2"."""
_SIZE = re.compile(r"\d{3,}x\d{3,}")
_MASK_OR_BAND_SUFFIX = re.compile(
    r"(?<=[-_. ])(masks?|gt|labels?|seg|segmentation|groundtruth|depth|disp|flow|B\d[0-9A]|band\d+)$", re.I
)
"""Suffixes in file names that denote masks, measured values or spectral bands."""
_MIN_SUFFIXED = 0.3
"""Minimum fraction of the images in a class folder whose names end like masks or bands, such as "_depth"."""
_SOURCES = frozenset({"cam", "camera", "view"})
"""Words for devices that record images, in the names of folders."""
_NEVER_OF_CLASSES = frozenset({".xml", ".csv", ".mat", ".geojson", ".pts", ".pfm", ".exr", ".flo"})
"""Extensions of annotations or measured values.

Files with them show that folders aren't classes, whatever their name.
"""
_ANNOTATIONS = frozenset({".json", ".txt", *_NEVER_OF_CLASSES})
_SAMPLED = 40
"""Maximum number of class folders, and of files in each, that are examined for evidence that they aren't classes."""
_MASK_ENDING = re.compile(r"[-_ ]?(mask|masks|label|labels|gt|seg|segmentation|l)$")
_COMPARED = 1000
"""Maximum number of images per class whose names are compared.

The first ones in sorted order suffice, since equal names are sorted equally.
"""
_MIN_FOR_SINGLE = 8
"""Minimum number of folders with one image each as evidence that the folders are not classes."""
_INNER_FOLDERS = 60
"""Maximum number of folders inside a class folder whose names are compared with those in other class folders."""
_INNER_DEPTH = 3  # levels of folders
_VIEWS = 5
"""Maximum number of pairs of images with the same name whose pixels are compared."""
_MIN_VIEWS = 3  # of these pairs
_THUMBNAIL_SIDE = 16  # pixels
_MIN_CORRELATION = 0.5
"""Minimum mean correlation of the pixels of two images with the same name that show the same thing."""
_MIN_MARGIN = 0.25
"""Minimum difference between the mean correlations of images with the same name and with different names."""


def find_evidence_against(tree: Tree, roots: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield reasons, as short noun phrases, why folders of images are probably not one class each.

    `names` are the names of the folders that would be classes, and `roots` the folders that contain them, relative to
    the dataset folder.
    """
    sampled = sample_evenly(names, _SAMPLED)
    yield from _find_role_names(tree, names)
    yield from _describe_parts(names)
    class_folders = [os.path.join(root, name) for name in sampled for root in roots]
    children = {child for folder in class_folders if tree.exists(folder) for child in tree.folders(folder)}
    if roles := sorted(name for name in children if _normalize(name) in _ROLES):
        yield f"folders named by their role inside those of the classes ({abbreviate_names(roles, 4)})"
    yield from _find_shared_folders(names, {name: _list_inner_names(tree, roots, name) for name in sampled})
    stems = {name: found for name in sampled if (found := _list_stems(tree, roots, name))}
    yield from _find_adjacent_annotations(tree, roots, sampled, stems)
    if folder := find_annotation_folder(tree, roots, names, set().union(*stems.values())):
        yield f"a folder of annotation files ({printable(folder)})"
    yield from _find_masks_or_bands(stems)
    image_counts = [len(found) for found in stems.values()]
    if len(names) >= _MIN_FOR_SINGLE and image_counts and float(np.median(image_counts)) <= 1:
        yield f"{counted(len(names), 'folder')} with one image each, as if a folder were an image"
    yield from _find_same_stems(tree, roots, stems)


def _find_role_names(tree: Tree, names: Sequence[str]) -> Iterator[str]:
    """Yield evidence against classes, as phrases for the user, if folders are named for splits or for roles.

    A role is what the files in a folder are for, such as "masks".
    """
    splits = [name for name in names if split_named(name)]
    # A single such folder among many may be a class.
    if len(splits) > 1 or (splits and 2 * len(splits) >= len(names)):
        yield f"folders named like splits, without folders of classes in them ({abbreviate_names(splits, 4)})"
    if paired := _find_split_pairs(names):
        yield f"folders named alike but for the split ({abbreviate_names(paired, 4)})"
    roles = [name for name in names if _normalize(name) in _ROLES]
    if roles:
        yield f"folders named by their role ({abbreviate_names(roles, 4)})"
    # A name with additional words is only evidence together with other such names.
    ending = [name for name in names if name not in roles and not _ROLES.isdisjoint(_split_words(name)[-1:])]
    if len(ending) > 1 or (ending and 2 * len(ending) >= len(names)):
        yield f"folders named by their role ({abbreviate_names(ending, 4)})"
    others = [name for name in names if name not in (*roles, *ending)]
    leading = [name for name in others if not _LEADING_ROLES.isdisjoint(_split_words(name)[:1])]
    if len(leading) > 1 and 2 * len(leading) >= len(names):
        yield f"folders named by their role ({abbreviate_names(leading, 4)})"
    if not paired:
        yield from _describe_validation_folders([name for name in names if name not in splits], len(names))
    name_of_root = os.path.basename(os.path.normpath(tree.root))
    if _normalize(name_of_root) in _ROLES:
        siblings = [name for name in _list_siblings(tree.root) if name != name_of_root and _normalize(name) in _ROLES]
        if siblings:
            yield f"the folder {printable(name_of_root)} next to {abbreviate_names(siblings, 4)}, which may hold its annotations"


def _find_split_pairs(names: Sequence[str]) -> list[str]:
    """Return the names that are equal to another name except for the split, such as boxes_train and boxes_test."""
    names_by_split: dict[tuple[str, ...], dict[str, str]] = {}  # for each name without the split
    for name in names:
        words = _split_words(name)
        splits = list(filter(None, map(split_named, words)))
        other_words = tuple(word for word in words if not split_named(word))
        if len(splits) == 1 and other_words:
            names_by_split.setdefault(other_words, {})[splits[0]] = name
    return [name for by_split in names_by_split.values() if len(by_split) > 1 for name in by_split.values()]


def _describe_validation_folders(names: Sequence[str], total: int) -> Iterator[str]:
    """Yield evidence against classes if at least half of the folders have a word for validation in their names.

    The evidence is a phrase for the user. An example is val_large next to data_large in Places. `total` is the number
    of all folders, also of those that are not in `names`.
    """
    found = [name for name in names if "val" in {split_named(word) for word in _split_words(name)}]
    if found and 2 * len(found) >= total:
        yield f"folders with words for validation in their names ({abbreviate_names(found, 4)})"


def _describe_parts(names: Sequence[str]) -> Iterator[str]:
    """Yield evidence against classes, as a phrase for the user, if the folders seem to be parts or copies of a dataset.

    Their names then follow a pattern: numbered parts, several sizes of the same images, or several cameras.
    """
    words = [[word for word in _split_words(name) if not word.isdigit()] for name in names]
    if len(names) < 2 or not all(words):
        return
    if sum(bool(_SIZE.search(name)) for name in names) > 1:
        yield f"folders that seem to be copies in several sizes ({abbreviate_names(names, 4)})"
    are_numbered_parts = len({tuple(each) for each in words}) == 1 and words[0][-1] in _PART_WORDS
    are_cameras = len({each[0] for each in words}) == 1 and words[0][0] in _SOURCES
    if are_numbered_parts or are_cameras:
        yield f"folders that seem to be parts of a dataset ({abbreviate_names(names, 4)})"


def _list_inner_names(tree: Tree, roots: Sequence[str], name: str) -> set[str]:
    """Return the names of the folders inside the class folder `name`, up to a few levels deep.

    `roots` are the folders that may contain the class folder.
    """
    found: set[str] = set()
    for root in roots:
        folder = os.path.join(root, name)
        if tree.exists(folder):
            inner = islice(tree.walk(folder, depth=_INNER_DEPTH), 1, _INNER_FOLDERS)
            found |= {os.path.basename(each) for each in inner}
    return found


def _find_shared_folders(names: Sequence[str], inner: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield evidence against classes, as a phrase for the user, if class folders contain subfolders of the same names.

    These may be domains, copies, or splits of each class. `inner` holds the names of the folders inside each of the
    class folders `names`. Names that differ only in their numbers count as one, since sequences inside each class are
    numbered in the same way. They count separately if the class folders themselves are numbered, such as patients with
    a folder for each class.
    """
    for name, found in inner.items():
        others = sorted((found & set(names)) - {name})
        if len(others) > 1:
            yield f"folders named like the other classes inside {printable(name)} ({abbreviate_names(others, 4)})"
            return
    with_folders = [found for found in inner.values() if found]
    if len(with_folders) < 2 or 2 * len(with_folders) < len(inner):
        return
    counts = Counter(child for found in with_folders for child in found)
    shared = sorted(child for child, count in counts.items() if 2 * count > len(with_folders))
    are_numbered = len({re.sub(r"\d+", "", name) for name in names}) == 1
    different = shared if are_numbered else {re.sub(r"[\W\d_]+", "", child) for child in shared} - {""}
    if len(different) > 1:
        yield f"folders of the same names inside those of the classes ({abbreviate_names(shared, 4)})"


def _find_adjacent_annotations(
    tree: Tree, roots: Sequence[str], names: Sequence[str], stems: Mapping[str, set[str]]
) -> Iterator[str]:
    """Yield evidence against classes, as a phrase for the user, if class folders contain annotation files.

    These are files with the name of an image, or files of a type that only annotations have. `stems` are the names of
    the sampled images, without extension, in each of the class folders `names`.
    """
    annotations: list[str] = []
    for name in names:
        for folder in _iterate_folders(tree, roots, name):
            for file in tree.files(folder, tuple(_ANNOTATIONS))[:_SAMPLED]:
                if os.path.splitext(file)[0] in stems.get(name, ()) or suffix(file) in _NEVER_OF_CLASSES:
                    annotations.append(os.path.join(folder, file))
                    break
    if annotations:
        yield f"annotation files among the images ({abbreviate_names(annotations, 4)})"


def _find_masks_or_bands(stems: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield evidence against classes, as a phrase, if a folder contains masks, depth maps or bands next to images.

    `stems` holds the names of the images in each class folder, without extensions.
    """
    for name, found in stems.items():
        bases = {stem: _MASK_OR_BAND_SUFFIX.sub("", stem) for stem in found}  # names without a suffix
        counts = Counter(bases.values())
        suffixed = sorted(
            stem for stem, base in bases.items() if base != stem and (counts[base] > 1 or _has_image(base, found))
        )
        if len(suffixed) > 1 and len(suffixed) >= _MIN_SUFFIXED * len(found):
            yield f"images of one thing under several endings in {printable(name)} ({abbreviate_names(suffixed, 4)})"
            return


def _has_image(base: str, stems: Set[str]) -> bool:
    """Return True if `stems` contains the name `base`, alone or followed by a word for images, such as "rgb"."""
    return base.rstrip("-_. ") in stems or any(f"{base}{word}" in stems for word in ("color", "rgb", "image", "img"))


def find_annotation_folder(
    tree: Tree, roots: Sequence[str], names: Sequence[str], stems: Set[str] = frozenset()
) -> str:
    """Return the first folder next to the class folders that contains annotation files, or "" if there is none.

    Files of certain types always count. Other types count if files are named like images (`stems`, without extensions)
    or like class folders (`names`). `roots` are the folders that contain the class folders.
    """
    annotated_names = stems | set(names)
    for root in roots:
        for name in tree.folders(root):
            if name in names:
                continue
            for folder in islice(tree.walk(os.path.join(root, name), depth=1), _SAMPLED):
                files = tree.files(folder, tuple(_ANNOTATIONS))[:_COMPARED]
                fitting = [file for file in files if os.path.splitext(file)[0] in annotated_names]
                # XML and GeoJSON files are annotations, whatever their names.
                if len(fitting) > 1 or any(suffix(file) in (".xml", ".geojson") for file in files):
                    return folder
    return ""


def _find_same_stems(tree: Tree, roots: Sequence[str], stems: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield evidence against classes, as a phrase for the user, if the files of two folders belong together by name.

    For example, one folder may contain images and the other masks. `stems` holds the names of the images in each class
    folder, without extensions.
    """
    names = list(stems)
    # Names of the images without a suffix for masks.
    bases = {name: {_MASK_ENDING.sub("", stem.lower()) for stem in found} for name, found in stems.items()}
    for first, second in combinations(names, 2):
        shared = len(bases[first] & bases[second])
        nearly_all = 0.9 * min(len(stems[first]), len(stems[second]))
        if shared < nearly_all or shared < 2:
            continue
        # Pixels are compared for one pair of folders only, since there may be hundreds of pairs.
        reason = _find_reason_to_pair(tree, roots, first, second, compare_pixels=[first, second] == names[:2])
        if reason is not None:
            yield f"the same file names in {printable(first)} and {printable(second)}{reason}"
            return


def _find_reason_to_pair(
    tree: Tree, roots: Sequence[str], first: str, second: str, *, compare_pixels: bool
) -> str | None:
    """Return a phrase with the evidence that two folders with the same file names hold images of the same things.

    The phrase is "" if the names of the folders suffice as evidence. Returns None without any evidence. The pixels of
    the images are compared only if `compare_pixels` is True.
    """
    first_has_masks, second_has_masks = (are_label_images(_sample_files(tree, roots, each)) for each in (first, second))
    is_known = first_has_masks is not None and second_has_masks is not None
    if is_known and first_has_masks != second_has_masks:
        return f", and {printable(first if first_has_masks else second)} looks like masks"
    if {_normalize(first), _normalize(second)} <= _PAIRED_ROLES | _ROLES:
        return ""
    return ", and they show the same" if compare_pixels and _show_same_scenes(tree, roots, first, second) else None


def _iterate_folders(tree: Tree, roots: Sequence[str], name: str) -> Iterator[str]:
    """Yield the class folder `name` in each of the `roots` that contains it, and all folders inside it."""
    for root in roots:
        if tree.exists(os.path.join(root, name)):
            yield from tree.walk(os.path.join(root, name))


def _iterate_images(tree: Tree, roots: Sequence[str], name: str) -> Iterator[str]:
    """Yield the paths of the images in the class folder `name`, relative to the dataset folder."""
    folders = _iterate_folders(tree, roots, name)
    return (os.path.join(folder, file) for folder in folders for file in tree.images(folder))


def _list_stems(tree: Tree, roots: Sequence[str], name: str) -> set[str]:
    """Return the names, without extensions, of the first images in the class folder `name`."""
    return set(map(stem, islice(_iterate_images(tree, roots, name), _COMPARED)))


def _sample_files(tree: Tree, roots: Sequence[str], name: str) -> list[str]:
    """Return the full paths of up to four images in the class folder `name`, or [] if it has none."""
    for folder in _iterate_folders(tree, roots, name):
        if files := tree.images(folder):
            return [tree.path(folder, file) for file in sample_evenly(files, 4)]
    return []


def _show_same_scenes(tree: Tree, roots: Sequence[str], first: str, second: str) -> bool:
    """Return True if two class folders seem to contain different images of the same things under the same names.

    Images with the same name must be far more similar than images with different names. Identical copies are not
    considered, because the inspection finds them regardless of their names.
    """
    paths_by_stem = [
        {stem(file): tree.path(file) for file in islice(_iterate_images(tree, roots, name), _COMPARED)}
        for name in (first, second)
    ]
    common = sorted(paths_by_stem[0].keys() & paths_by_stem[1].keys())
    chosen = sample_evenly(common, _VIEWS)
    all_thumbnails = [[_make_thumbnail(paths[stem]) for stem in chosen] for paths in paths_by_stem]
    pairs = [pair for pair in zip(*all_thumbnails, strict=True) if pair[0] is not None and pair[1] is not None]
    if len(pairs) < _MIN_VIEWS or any(np.array_equal(*pair) for pair in pairs):
        return False
    # The thumbnails have mean 0 and variance 1, so the mean of a product is a correlation.
    left_images, right_images = (
        np.array(thumbnails).reshape(len(pairs), -1) for thumbnails in zip(*pairs, strict=True)
    )
    correlations = left_images @ right_images.T / left_images.shape[1]
    of_same = np.diagonal(correlations)
    mean_of_others = (correlations.sum() - of_same.sum()) / (correlations.size - len(pairs))
    is_highest = bool((correlations.argmax(1) == np.arange(len(pairs))).all())
    return is_highest and of_same.mean() >= _MIN_CORRELATION and of_same.mean() - mean_of_others >= _MIN_MARGIN


def _make_thumbnail(path: str) -> npt.NDArray[np.float64] | None:
    """Return a small gray version of an image with mean 0 and variance 1, or None if it can't be read."""
    try:
        with decode_header(read_image(path)) as image:
            levels = np.asarray(image.convert("L").resize((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE)), np.float64)
    except Exception:  # a broken file may raise nearly anything in a decoder
        return None
    return (levels - levels.mean()) / levels.std() if levels.std() else None


def _list_siblings(folder: str) -> Sequence[str]:
    """Return the names of all folders in the parent of `folder` (a full path), or [] if it can't be read."""
    try:
        return Tree(os.path.dirname(os.path.normpath(folder)) or os.curdir).folders()
    except OSError:
        return []


def _normalize(name: str) -> str:
    """Return a name in lower case with single spaces instead of other characters than letters and digits."""
    return re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()


def _split_words(name: str) -> list[str]:
    """Return the lower-case words in a name: "ped" and "masks" for both "PedMasks" and "ped_masks"."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
