"""Files that describe a YOLO dataset: data.yaml, obj.data of darknet, and lists of class names. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.reading import Unfit, read_text, read_text_lines, refuse_unusable
from engine.data.formats.tree import Tree, split_named
from engine.data.formats.yolo.labels import MAX_CLASSES
from engine.data.splits import dataset_error, dataset_warning, printable
from engine.system.format import counted
from engine.system.regular_files import UnusableFile

NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "class_names.txt", "predefined_classes.txt")
MAX_YAML_BYTES = 1 << 20
"""Maximum size of a YAML file in bytes.

Such a file has room for thirty thousand names, and PyYAML needs seconds to parse it.
"""
MAX_LEVELS = 2
"""Maximum depth of folders that are searched for data.yaml or obj.data."""
MAX_NESTING = 50
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}
_NOTHING = ("", "~", "null", "none")


@dataclass
class Definition:
    """Description of a YOLO dataset, read from a YAML file such as data.yaml, or from obj.data.

    Attributes:
        file: Path of the file relative to the dataset folder, or "" if there is none.
        names: Class names in the order of their numbers, or None if the file doesn't list them.
        splits: Paths of folders, lists or images as written in the file, by "train", "val" and "test".
        base: Folder that the paths are relative to, as written in the file.
        keypoint_shape: Number of keypoints and number of values for each, or None for datasets without keypoints.
    """

    file: str = ""
    names: list[str] | None = None
    splits: dict[str, list[str]] = field(default_factory=dict)
    base: str = ""
    keypoint_shape: tuple[int, int] | None = None
    problems: list[Problem] = field(default_factory=list)


def find_definition(tree: Tree) -> Definition:
    """Return the description of a YOLO dataset from its YAML file or obj.data, or an empty one without such a file.

    Raises UnusableFile or OSError.
    """
    problems: list[Problem] = []
    found = _find_in_folder(tree, "", problems)
    if not found:
        inner_folders = [folder for folder in tree.walk(depth=MAX_LEVELS) if folder]
        found = [each for folder in inner_folders for each in _find_in_folder(tree, folder, problems)]
    if not found:
        return Definition(problems=problems)  # problems with invalid files are ignored if another file is valid
    chosen = next((each for each in found if each.splits), found[0])
    differing = [each.file for each in found if (each.names, each.splits) != (chosen.names, chosen.splits)]
    if differing:
        message = f"{printable(differing[0])} describes another dataset than {printable(chosen.file)}, which is used."
        chosen.problems.append(dataset_warning(message, "Keep one of them in the folder."))
    return chosen


def _find_in_folder(tree: Tree, folder: str, problems: list[Problem]) -> list[Definition]:
    """Return the YOLO descriptions in a folder: those in YAML files or, without any, in darknet's .data files.

    The most likely one comes first. Errors about invalid YAML files are appended to `problems`.
    """
    found: list[Definition] = []
    names = tree.files(folder, (".yaml", ".yml"))
    for name in sorted(names, key=lambda name: (not name.startswith("data"), name)):
        path = os.path.join(folder, name)
        try:
            content = read_yaml(tree.path(path))
        except Unfit as error:
            remedy = "Correct it: tabs, missing quotes or missing spaces after colons are common mistakes."
            problems.append(dataset_error(f"{printable(name)} can't be read: {error}.", remedy))
            continue
        if content.keys() & {"names", "nc"}:
            found.append(_make_yaml_definition(tree, content, path))
    if not found:
        darknet = [_read_darknet(tree, os.path.join(folder, name)) for name in tree.files(folder, ".data")]
        found = [each for each in darknet if each.splits]
    return found


def resolve(tree: Tree, entry: str, near: str, base: str = "", split: str = "") -> str | None:
    """Resolve `entry` to a path relative to the dataset folder, or return None if it doesn't exist.

    Paths often come from another computer, or begin with one ".." too many, as those from Roboflow do. Therefore, their
    first folders are dropped until the rest is a path in the dataset. A folder with the name of the split is not
    dropped.

    Args:
        tree: Listing of the dataset.
        entry: Path as written in the file.
        near: Folder of the file that contains the entry, relative to the dataset folder.
        base: Path, as written in the file, that `entry` is relative to.
        split: Split that the path belongs to.
    """
    entry_parts, base_parts = _split_path(entry), _split_path(base)
    parts = [*base_parts, *entry_parts]
    root_name = os.path.basename(os.path.abspath(tree.root))
    for start in dict.fromkeys((near, "")):  # the folder of the file, then the dataset folder
        for skipped in range(len(parts) + 1):
            remaining, dropped = parts[skipped:], parts[len(base_parts) : skipped]
            drops_split = split and split in map(split_named, dropped) and not any(map(split_named, remaining))
            # If everything has been dropped, the entry must be the dataset folder itself.
            is_other_folder = not remaining and entry_parts and entry_parts[-1] != root_name
            if drops_split or is_other_folder:
                break
            path = os.path.join(start, *remaining)
            if os.path.exists(tree.path(path)):
                return path
    outside = os.path.normpath(os.path.join(near, base, entry))
    return outside if os.path.exists(tree.path(outside)) else None


def _split_path(path: str) -> list[str]:
    """Return the folders and the file name in a path from any operating system, without ".", ".." and patterns."""
    path = re.sub(r"^[A-Za-z]:/", "", path.strip().replace("\\", "/"))
    return [part for part in path.split("/") if part not in ("", ".", "..") and "*" not in part and "\0" not in part]


def find_class_names(
    tree: Tree, definition: Definition, folders: Iterable[str]
) -> tuple[list[str] | None, list[Problem]]:
    """Return the class names, or None if no file lists them, and problems with the files.

    The `definition` of the dataset may contain the names. The `folders` of text files may also contain a list of names.
    """
    searched = dict.fromkeys(["", *(os.path.dirname(folder) for folder in folders), *folders, *tree.named(("data",))])
    files = [os.path.join(folder, name) for folder in searched for name in NAME_FILES if name in tree.files(folder)]
    names_by_file = {path: names for path in files if (names := read_text_lines(tree.path(path)))}
    if not names_by_file:
        return definition.names, []
    chosen = min(names_by_file, key=lambda path: NAME_FILES.index(os.path.basename(path)))
    names = names_by_file[chosen]
    if definition.names is not None and names != definition.names:
        message = f"{printable(definition.file)} and {printable(chosen)} name different classes."
        remedy = f"The names in {printable(definition.file)} are used; check them."
        return definition.names, [dataset_warning(message, remedy)]
    # Programs write such a list to each folder, with the classes in the order of their first use.
    same_name = [path for path in names_by_file if os.path.basename(path) == os.path.basename(chosen)]
    others = [path for path in same_name if names_by_file[path] != names]
    if definition.names is None and others:
        message = f"{printable(chosen)} and {printable(others[0])} name different classes, or in another order."
        remedy = "Number the classes in all folders alike, and keep one list of their names."
        return names, [dataset_error(message, remedy)]
    return names, []


def _make_yaml_definition(tree: Tree, content: Mapping[str, Any], file: str) -> Definition:
    """Convert `content`, which is from the YAML file `file`, to the description of a YOLO dataset.

    Numbers of classes or keypoints from `MAX_CLASSES` on are ignored as invalid. Raises UnusableFile if the names can't
    be used.
    """
    definition = Definition(file, base=_to_text(content.get("path")))
    names = content.get("names")
    list_name = _to_text(names)  # `names` may be the path of a list of names
    is_list = list_name.endswith((".txt", ".names"))
    list_path = resolve(tree, list_name, os.path.dirname(file)) if is_list else None
    definition.names = read_text_lines(tree.path(list_path)) if list_path else _parse_names(names, tree.path(file))
    count = _to_number(content.get("nc"))
    if count is not None and count < MAX_CLASSES:
        if definition.names is None:
            definition.names = [f"class {number}" for number in range(count)]
        elif count != len(definition.names):
            message = f"{printable(file)} names {counted(len(definition.names), 'class')}, but its nc is {count}."
            definition.problems.append(dataset_warning(message, "The names are used; correct nc."))
    for key, value in content.items():
        entries = [_to_text(each) for each in value] if isinstance(value, list) else [_to_text(value)]
        split = split_named(key)  # of several keys for a split, the first with entries counts
        if split and split not in definition.splits and any(entries):
            definition.splits[split] = [entry for entry in entries if entry]
    shape = content.get("kpt_shape")
    if isinstance(shape, list) and len(shape) == 2:
        points, values = map(_to_number, shape)
        if points and points < MAX_CLASSES and values in (2, 3):
            definition.keypoint_shape = points, values
    return definition


def _read_darknet(tree: Tree, file: str) -> Definition:
    """Read a darknet obj.data file with lines such as "train = data/train.txt"."""
    lines = (line.partition("=") for line in read_text(tree.path(file)).splitlines())
    values = {key.strip().lower(): value.strip() for key, sign, value in lines if sign}
    definition = Definition(file)
    for key, value in values.items():
        split = split_named(key)
        if split and split not in definition.splits and value:
            definition.splits[split] = [value]
    list_name = values.get("names")
    list_path = resolve(tree, list_name, os.path.dirname(file)) if list_name else None
    if list_path is not None:
        definition.names = read_text_lines(tree.path(list_path)) or None
    return definition


def _parse_names(names: Any, path: str) -> list[str] | None:
    """Convert `names` from a YAML file to class names, ordered by number, or to None if it is empty.

    `names` is a list, a comma-separated text, or a mapping between numbers and names. Raises UnusableFile for anything
    else. Numbers are given as text, too (see `parse_yaml`).
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")] if _to_text(names) else None
    if not names:
        return None
    if any(not isinstance(each, str) for each in (names.values() if isinstance(names, dict) else names)):
        raise UnusableFile(path, "has a list as the name of a class", "Give each class a single name.")
    if not isinstance(names, dict):
        return names
    numbered = {_to_number(key): name for key, name in names.items()}
    if None in numbered:  # the mapping may lead from names to numbers
        numbered = {_to_number(value): key for key, value in names.items()}
    if None in numbered:
        raise UnusableFile(path, "has names of classes without numbers", "List the names, or number them from 0.")
    highest = max((number for number in numbered if number is not None), default=-1)
    if highest >= MAX_CLASSES:
        reason = f"names the class {highest:,}; class numbers go up to {MAX_CLASSES - 1:,}"
        raise UnusableFile(path, reason, "Number the classes from 0.")
    return [numbered.get(number, f"class {number}") for number in range(highest + 1)]


def _to_text(value: Any) -> str:
    """Return a text from YAML without surrounding spaces, or "" for a word like "null" and for anything but text."""
    return value.strip() if isinstance(value, str) and value.strip().lower() not in _NOTHING else ""


def _to_number(value: Any) -> int | None:
    """Convert a text from YAML to a non-negative integer, or return None if it isn't one."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII) else None


def read_yaml(path: str) -> dict[str, Any]:
    """Return the mapping in a YAML file (see `parse_yaml`), or an empty one for a broken link.

    Raises OSError and the exceptions of `parse_yaml`.
    """
    try:
        return parse_yaml(read_text(path, MAX_YAML_BYTES), path)
    except FileNotFoundError:
        return {}


def parse_yaml(text: str, path: str) -> dict[str, Any]:
    """Return the mapping in YAML text. All values are read as text, so that a class may be called "no" or "007".

    Returns an empty mapping for other content. Raises Unfit for invalid YAML. Raises UnusableFile for text that is too
    long or nested too deeply, and for aliases of lists or mappings, since a few lines with such aliases can expand to a billion words. `path`
    is the file that contains the text.
    """
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise UnusableFile(path, "contains too much YAML", "Shorten it.")
    with refuse_unusable(path):
        if max(accumulate(_BRACKETS.get(letter, 0) for letter in text), default=0) > MAX_NESTING:
            # PyYAML would need quadratic time to find this. `refuse_unusable` reports that the file is nested too deeply.
            raise RecursionError
        try:
            loader = yaml.BaseLoader(text)
            node = loader.get_single_node()
            if node is None:
                return {}
            _check_aliases(node, path, set())
            content = loader.construct_document(node)
        except UnusableFile:  # a ValueError, which isn't about the syntax
            raise
        except (ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError) as error:
            mark = getattr(error, "problem_mark", None)  # the position, if PyYAML knows it
            subject = "it" if mark is None else f"line {mark.line + 1}"
            raise Unfit(f"{subject} is not valid YAML") from None
    return content if isinstance(content, dict) else {}


def _check_aliases(node: Any, path: str, visited: set[int]) -> None:
    """Raise UnusableFile if a list or a mapping occurs in several places of a YAML document.

    `visited` holds the ids of the nodes that were checked before.
    """
    if isinstance(node.value, str):  # aliases of single values are harmless
        return
    if id(node) in visited:
        raise UnusableFile(path, "contains aliases of lists or mappings", "Write them out in full.")
    visited.add(id(node))
    for item in node.value:
        for child in item if isinstance(item, tuple) else (item,):  # a key and a value of a mapping, or a list item
            _check_aliases(child, path, visited)
