"""Find the images of a YOLO dataset by split, using its description, lists and folders. Torch-free."""

from __future__ import annotations

import os

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_TABLE_BYTES, read_text_lines
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.text_files import Pair, TextFiles, find_image_folders, pair_by_folder
from engine.data.formats.tree import Tree, split_named
from engine.data.formats.yolo.definition import Definition, resolve
from engine.data.splits import dataset_warning, printable, warn_about


class ImageSearch:
    """Search for the images of each split and their text files. All folders are listed on creation.

    Attributes:
        problems: Problems with paths and lists.
        texts_of_images: Paths of the text files for all images in folders, including images without a split.
    """

    def __init__(self, tree: Tree, definition: Definition) -> None:
        self.problems: list[Problem] = []
        self._tree = tree
        self._definition = definition
        self._texts = TextFiles(tree)
        self._lookup = ImageLookup(tree)
        self._by_folder = pair_by_folder(tree, self._texts)  # by split, as the names of folders show it
        self.texts_of_images = {pair.text for pairs in self._by_folder.values() for pair in pairs if pair.text}

    def find_splits(self) -> dict[str, list[Pair]]:
        """Return the images of a YOLO dataset by split: "train", "val" and "test", or "" for a dataset without splits.

        If data.yaml or obj.data lacks a split or has a wrong path for it, a folder with the name of the split is used.
        """
        found: dict[str, list[Pair]] = {}
        for split, entries in (self._definition.splits or self._find_lists()).items():
            pairs = [pair for entry in entries for pair in self._find_named(entry, split)]
            if pairs:
                found[split] = list(dict.fromkeys(pairs))
        taken = {pair.image for pairs in found.values() for pair in pairs}
        for split, pairs in self._by_folder.items():
            remaining = [pair for pair in pairs if pair.image not in taken]
            name = split or ("train" if taken else "")  # images without a split are for training if others have one
            if remaining and name not in found:
                found[name] = remaining
        return found

    def _find_lists(self) -> dict[str, list[str]]:
        """Return the paths of lists of images in the dataset folder, such as train.txt, keyed by split."""
        found: dict[str, list[str]] = {}
        for folder in ("", *self._tree.named(("data",))):
            for name in self._tree.files(folder, ".txt"):
                split = split_named(os.path.splitext(name)[0])
                path = os.path.join(folder, name)
                if split and split not in found and any(map(is_image, _read_list(self._tree.path(path))[:1])):
                    found[split] = [path]
        return found

    def _find_named(self, entry: str, split: str) -> list[Pair]:
        """Return the images that an entry of data.yaml or obj.data names: a folder, a list of images, or one image.

        If it doesn't exist, a warning is added to `problems`.
        """
        definition = self._definition
        path = resolve(self._tree, entry, os.path.dirname(definition.file), definition.base, split)
        if path is None:
            self.problems.append(self._make_missing_warning(entry, split))
            return []
        full_path = self._tree.path(path)
        if os.path.isdir(full_path):
            return [pair for folder in find_image_folders(self._tree, path) for pair in self._texts.pair_images(folder)]
        if is_image(path):
            return [self._pair(full_path)]
        return self._read_listed(path, split)

    def _read_listed(self, path: str, split: str) -> list[Pair]:
        """Return the images that the list `path` names, with their text files. Adds missing images to `problems`."""
        pairs: list[Pair] = []
        missing: list[str] = []
        for name in _read_list(self._tree.path(path)):
            image = self._lookup.find(name, os.path.dirname(path), split=split, has_extension=is_image(name))
            if image is None:
                missing.append(name)
            else:
                pairs.append(self._pair(image))
        remedy = "Such images are left out; add them to the folder, or remove them from the list."
        self.problems += warn_about(missing, "image", f"named in {printable(path)} but not in the folder:", remedy)
        return pairs

    def _pair(self, image: str) -> Pair:
        """Return the image at a full path, with its text file if there is one."""
        folder, name = os.path.split(image)
        return Pair(image, self._texts.find(self._tree.within(folder), name))

    def _make_missing_warning(self, entry: str, split: str) -> Problem:
        """Return a warning that data.yaml or obj.data names a path for `split` that doesn't exist."""
        file = printable(self._definition.file)
        message = f"{file} names {printable(entry)} for {split}, which does not exist"
        if instead := self._by_folder.get(split):
            folder = printable(self._tree.within(os.path.dirname(instead[0].image))) or "the dataset's folder"
            return dataset_warning(f"{message}; {folder} is used.", f"Correct the path in {file}.")
        return dataset_warning(f"{message}.", f"Correct the path in {file}, or add the folder.")


def _read_list(path: str) -> list[str]:
    """Return the names of the images that a list file of a YOLO dataset contains."""
    lines = read_text_lines(path, MAX_TABLE_BYTES)
    return [line if is_image(line) else line.split(maxsplit=1)[0] for line in lines]
