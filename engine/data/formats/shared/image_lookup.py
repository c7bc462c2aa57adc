"""Find images that are named in annotation files, often with paths from another computer. Torch-free."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, unquote, urlsplit

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.formats.tree import Tree, split_in, split_named, unicode_key

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "data", "jpegimages", "jpegs", "photos", "frames", "rgb")


class ImageLookup:
    """Search for images by their names in annotation files.

    A name is first tried as a path relative to the folder of the annotation file, its parent folder, the dataset folder,
    and subfolders of these three with a usual name for images. Then the first folders in the name are removed one after
    another. Finally, a file with this name anywhere in the dataset is used if there is only one. If the name suggests a
    split, images in folders of other splits are not used. A name that differs only in case is used if no image has the
    exact name.

    Attributes:
        ambiguous: Names for which several images were found.
    """

    def __init__(self, tree: Tree) -> None:
        self.ambiguous: list[str] = []
        self._tree = tree
        self._names: dict[str, dict[str, str]] = {}  # results of `_index_images`, by folder
        # Results of `_find_folders`, by its arguments.
        self._known_folders: dict[tuple[tuple[str, ...], str, str], list[tuple[str, dict[str, str]]]] = {}
        self._known_roots: dict[tuple[str, str], list[str]] = {}  # results of `_find_roots`
        self._paths_by_name: dict[str, list[str]] | None = None  # all images, with and without extension

    def find(self, name: str, near: str = "", *, split: str = "", has_extension: bool = True) -> str | None:
        """Return the full path of the image that an annotation file calls `name`, or None unless exactly one matches.

        A name of several images is added to `ambiguous`.

        Args:
            name: Path or URL of the image in the annotation file.
            near: Folder of the annotation file, relative to the dataset folder.
            split: Split of the annotations. Image folders of this split are preferred.
            has_extension: False if `name` may lack the file extension.
        """
        parts = _split_path(name)
        if not parts:
            return None
        key = unicode_key(parts[-1])
        for folder, names in self._find_folders(tuple(parts[:-1]), near, split):
            file_name = names.get(key) or names.get(key.lower())
            # The keys also include the names without extensions.
            if file_name is not None and (not has_extension or unicode_key(file_name).lower() == key.lower()):
                return folder + file_name
        return self._find_by_name(parts, split, has_extension=has_extension)

    def _find_folders(self, parents: tuple[str, ...], near: str, split: str) -> list[tuple[str, dict[str, str]]]:
        """Return the folders that may contain an image, most likely first.

        `parents` are the folders in the image's name in the annotation file. See `find` for the other arguments. Each
        result is the full path of a folder, ending with a separator, and the images in it (see `_index_images`).
        """
        cached = self._known_folders.get((parents, near, split))
        if cached is not None:
            return cached
        folders: dict[str, None] = {}
        roots = self._find_roots(near, split)
        for skipped in range(len(parents) + 1):
            if any(map(_find_split, parents[:skipped])):  # a removed folder still determines the split
                roots = [root for root in roots if _agrees_on_split(root, list(parents[:skipped]))]
            for root in roots:
                folder = os.path.normpath(os.path.join(root, *parents[skipped:]))
                folder = "" if folder == "." else folder
                if self._index_images(folder):
                    folders[folder] = None
        found = [(os.path.join(self._tree.path(folder), ""), self._index_images(folder)) for folder in folders]
        return self._known_folders.setdefault((parents, near, split), found)

    def _find_roots(self, near: str, split: str) -> list[str]:
        """Return the folders that names in an annotation file may be relative to, most likely first.

        `near` is the folder of the annotation file, and `split` is its split.
        """
        if (near, split) in self._known_roots:
            return self._known_roots[near, split]
        roots: list[str] = []
        for base in dict.fromkeys((near, os.path.dirname(near), "")):
            parents = [base, *(os.path.join(base, name) for name in self._tree.named(IMAGE_FOLDERS, base))]
            if split:  # folders for this split come first
                inner = [(parent, name) for parent in parents for name in self._tree.folders(parent)]
                roots += [os.path.join(parent, name) for parent, name in inner if _find_split(name) == split]
            roots += parents
        image_folders = [os.path.join(root, name) for root in roots for name in self._tree.named(IMAGE_FOLDERS, root)]
        self._known_roots[near, split] = list(dict.fromkeys([*roots, *image_folders]))
        return self._known_roots[near, split]

    def _index_images(self, folder: str) -> dict[str, str]:
        """Return the names of the images in a folder, keyed for lookup, or {} for a missing folder.

        Each image has three keys, all in one Unicode form: its name, its name in lower case, and its name without
        extension.
        """
        if folder not in self._names:
            by_key: dict[str, str] = {}
            is_outside = folder.startswith("..")  # as for a list of images that data.yaml names outside of the dataset
            if folder == "" or (not is_outside and self._tree.exists(folder)):
                for name in self._tree.images(folder):
                    by_key.setdefault(unicode_key(os.path.splitext(name)[0]), name)
                    by_key.setdefault(unicode_key(name).lower(), name)
                    by_key[unicode_key(name)] = name
            self._names[folder] = by_key
        return self._names[folder]

    def _find_by_name(self, parts: list[str], split: str, *, has_extension: bool) -> str | None:
        """Return the full path of the only image with a name in the dataset, or None if not exactly one has it.

        A name of several images is added to `ambiguous`.

        Args:
            parts: Folders and file name of the image in the annotation file.
            split: Split of the image, or "" if it is unknown or named by a folder in `parts`. Images in folders of
                other splits are left out.
            has_extension: False if the file name may lack the extension.
        """
        if self._paths_by_name is None:
            self._paths_by_name = {}
            for path in self._tree.find(tuple(EXTENSIONS)):
                name = os.path.basename(path)
                for key in {unicode_key(name), unicode_key(os.path.splitext(name)[0])}:
                    self._paths_by_name.setdefault(key, []).append(path)
        key = unicode_key(parts[-1])
        paths = self._paths_by_name.get(key, [])
        if has_extension:
            paths = [path for path in paths if unicode_key(os.path.basename(path)) == key]
        fitting = [path for path in paths if _agrees_on_split(os.path.dirname(path), [*parts[:-1], split])]
        if len(fitting) > 1:
            self.ambiguous.append("/".join(parts))
        return self._tree.path(fitting[0]) if len(fitting) == 1 else None


def _split_path(name: str) -> list[str]:
    """Return the folders and the file name in a path or URL as a list, without "." and ".."."""
    name = name.strip().replace("\\", "/")
    if "://" in name or "?d=" in name:  # Label Studio writes /data/local-files/?d=PATH
        try:
            url = urlsplit(name)
            name = unquote(parse_qs(url.query).get("d", [url.path])[0])
        except ValueError:  # an invalid URL, or a query with too many fields
            return []
    if name[1:3] == ":/":  # the drive of a Windows path
        name = name[3:]
    if "\0" in name:
        return []
    return [part for part in name.split("/") if part not in ("", ".", "..")]


def _agrees_on_split(folder: str, words: list[str]) -> bool:
    """Return False if the names in the path `folder` denote a split, and `words` denote another split."""
    requested_splits = set(map(_find_split, words)) - {""}
    folder_splits = set(map(_find_split, folder.split(os.sep))) - {""}
    return not requested_splits or not folder_splits or bool(requested_splits & folder_splits)


def _find_split(name: str) -> str:
    """Return the split that a folder name such as "train" or "train_images" denotes, or "" if it denotes none."""
    return split_named(name) or split_in(name)
