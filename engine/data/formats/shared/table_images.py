"""Find the images that tables name. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS, is_image
from engine.data.formats.shared.image_lookup import ImageLookup
from engine.data.formats.shared.tables import Table
from engine.data.formats.tree import Tree
from engine.data.splits import warn_about


@dataclass(frozen=True)
class TableFile:
    """Table in a file.

    `folder` is relative to the dataset folder. `split` is the split that the file belongs to, or "" if it has none.
    """

    folder: str
    split: str
    table: Table


class TableImages:
    """Search for the images that tables name, and collector of the names without an image."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._lookup = ImageLookup(tree)
        self._missing: dict[str, None] = {}  # an ordered set

    def find(self, file: TableFile, name: str, split: str = "") -> str | None:
        """Return the full path of the image that a row of a table names, or record it as missing and return None.

        `split` is the split of the row, or "" for the split of the table.
        """
        split = split or file.split
        path = self._lookup.find(name, file.folder, split=split, has_extension=is_image(name))
        if path is None and split != file.split:  # the images of all splits may be in a folder called train
            path = self._lookup.find(name, file.folder, has_extension=is_image(name))
        if path is None:
            self._missing[name] = None
        return path

    def measure_found_fraction(self, file: TableFile, names: Collection[str]) -> float:
        """Return the fraction of `names` that are names of images in the dataset folder."""
        exist = [self.find(file, name) is not None or name in self._lookup.ambiguous for name in names]
        return sum(exist) / len(names) if names else 0.0

    def problems(self, used: Collection[str], contested: Collection[str], remedy: str) -> Iterator[Problem]:
        """Yield warnings about names without an image or with several, and about images that no table names.

        Args:
            used: Full paths of the images that the tables name.
            contested: Additional names that may mean several images.
            remedy: Advice for images that no table names.
        """
        several = sorted({*self._lookup.ambiguous, *contested})
        not_found = [name for name in self._missing if name not in self._lookup.ambiguous]
        name_remedy = "Such names are left out; write the path from the table to each image into it."
        yield from warn_about(several, "name", "in a table that may mean several images:", name_remedy)
        yield from warn_about(not_found, "image", "that a table names can't be found:", "Such images are left out.")
        unnamed = [] if several or not used else self._find_unnamed(used)
        yield from warn_about(unnamed, "image", "that no table names:", remedy)

    def _find_unnamed(self, used: Collection[str]) -> list[str]:
        """Return the full paths of all images in the dataset folder that are not in `used`."""
        total = sum(self._tree.suffixes(folder)[ending] for folder in self._tree.walk() for ending in EXTENSIONS)
        if total <= len(used):  # counting is much faster than listing all paths
            return []
        return [path for path in map(self._tree.path, self._tree.find(tuple(EXTENSIONS))) if path not in used]
