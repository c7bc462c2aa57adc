"""Boxes in text files as YOLO keeps them (docs.ultralytics.com, "Detection datasets"): a line for each box with the
number of its class, its middle and its sides in fractions of the image; or, for outlines, their points.
Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MOST_TABLE_BYTES, Unfit, judged, read_number, read_text
from engine.data.formats.boxes import Annotations, Box, Marked
from engine.data.formats.pairing import (
    TEXTS,
    Joined,
    Pair,
    endings,
    find_pairs,
    join,
    parse_all,
    probe,
    read_list,
    without_counterpart,
)
from engine.data.splits import shown, wrong
from engine.system.regular_files import UnusableFile

NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "class_names.txt", "predefined_classes.txt")
BESIDE = 0.01
"""How far out of the image a fraction may lie before the file is taken for one of another kind."""
NOT_ANNOTATIONS = frozenset(
    {*NAME_FILES, "labels.txt", "notes.txt", "map.txt", "train.txt", "val.txt", "test.txt", "readme.txt"}
)

MOST_CLASSES = 100_000
"""Larger numbers are of no class."""
MOST_YAML_BYTES = 1 << 20
"""Thirty thousand names take less; PyYAML takes seconds for it."""
MOST_DEEP = 50
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}
BOX, LEAST_OUTLINE = 4, 6
"""Fractions in a line that tells of a box, and in one that tells of the smallest outline."""

Lines = list[list[str]]


class Row(NamedTuple):
    """A line: a class, and 4 fractions of a box's middle and sides or as many as an outline's points have."""

    label: int
    values: list[float]

    @property
    def box(self) -> Box:
        if len(self.values) == BOX:
            across, down, width, height = self.values
            return Box(across - width / 2, down - height / 2, across + width / 2, down + height / 2, self.label)
        x, y = self.values[::2], self.values[1::2]
        return Box(min(x), min(y), max(x), max(y), self.label)


@dataclass(frozen=True)
class YoloFiles:
    """The contents of a folder's files: classes, the rows of each image by split, and problems."""

    classes: tuple[str, ...]
    splits: dict[str, list[tuple[str, list[Row]]]]
    problems: list[Problem]

    def boxes(self) -> Annotations:
        """The boxes, and those around outlines."""
        splits = {
            split: [Marked(path, [row.box for row in rows], fractions=True) for path, rows in images]
            for split, images in self.splits.items()
        }
        return Annotations(self.classes, splits, list(self.problems))

    @property
    def outlined(self) -> bool:
        """Whether there are outlines among the rows."""
        return any(len(row.values) > BOX for images in self.splits.values() for _, rows in images for row in rows)


def find_yolo(folder: str, folders: Sequence[str]) -> YoloFiles | None:
    """The images and their rows in `folder`, whose folders are `folders`; None where it is not of that kind. Images
    without a file hold nothing."""
    about = _definition(folder)
    pairs = _by_definition(folder, about) or find_pairs(folder, folders, TEXTS) or _darknet(folder, folders)
    if not any(probe(pair.annotations, _texts(pair.annotations), _is_yolo) for pair in pairs.values()):
        return None
    joined = {split: _without_others(join(pair, TEXTS)) for split, pair in pairs.items()}
    problems = without_counterpart(joined.values(), alone_left_out=False)
    splits, unparsed = parse_all(joined, _read)
    problems += unparsed
    most = max((row.label for images in splits.values() for _, rows in images for row in rows), default=-1)
    for split, each in joined.items():
        splits[split] += [(path, []) for path in each.alone]
        splits[split].sort(key=lambda pair: pair[0])
    names = _names(folder, pairs, about)
    if names is None:
        names = [f"class {number}" for number in range(most + 1)]
    elif most >= len(names):
        message = f"The annotations contain class {most}, but only {len(names)} classes are named."
        problems.append(wrong(message, "Name every class in data.yaml or classes.txt, starting with class 0."))
    return YoloFiles(tuple(names), splits, problems)


def parse(lines: Lines) -> list[Row]:
    """The rows of a file. Raises Unfit for lines that are of no such kind."""
    rows = []
    for number, words in enumerate(lines, 1):
        label, values = _number(words[0], number), [_fraction(word, number) for word in words[1:]]
        if len(values) == BOX + 1:
            values.pop()  # how sure a detector was
        elif len(values) != BOX and (len(values) < LEAST_OUTLINE or len(values) % 2):
            raise Unfit(f"line {number} has {len(words)} numbers; a box needs 5")
        rows.append(Row(label, values))
    return rows


def _number(word: str, line: int) -> int:
    number = read_number(word, line)
    if not 0 <= number < MOST_CLASSES or number != int(number):
        raise Unfit(f"line {line} begins with {word[:40]}, not with a class number")
    return int(number)


def _fraction(word: str, line: int) -> float:
    value = read_number(word, line)
    if not -1 <= value <= 2:
        raise Unfit(f"line {line} contains {word[:40]}, which is not a fraction of the image")
    return value


def _lines(path: str) -> Lines:
    text = read_text(path)
    return [words for line in text.splitlines() if (words := line.split())]


def _read(path: str) -> list[Row]:
    with judged(path):
        return parse(_lines(path))


def _texts(folder: str) -> list[str]:
    return [name for name in endings(folder, ".txt") if name.lower() not in NOT_ANNOTATIONS]


def _is_yolo(path: str) -> bool | None:
    """Whether a file is of this format; None where it has no lines."""
    try:
        lines = _lines(path)
        if not lines:
            return None
        values = [float(word) for words in lines for word in words[1:]]
        return bool(parse(lines)) and max(values) <= 1 + BESIDE
    except UnusableFile:
        raise
    except ValueError:
        return False


def _without_others(joined: Joined) -> Joined:
    """Lists and names that lie among the annotations are none of them."""
    joined.spare = [path for path in joined.spare if os.path.basename(path).lower() not in NOT_ANNOTATIONS]
    return joined


# What data.yaml says


def _definition(folder: str) -> dict[str, Any]:
    """data.yaml, or another YAML file that names classes; empty where there is none."""
    for name in sorted(
        endings(folder, ".yaml") + endings(folder, ".yml"), key=lambda name: not name.startswith("data.")
    ):
        path = os.path.join(folder, name)
        try:
            content = _read_yaml(path)
        except OSError:
            continue
        if isinstance(content, dict) and "names" in content:
            return {**content, "names": _judged_names(content["names"], path)}
    return {}


def _read_yaml(path: str) -> Any:
    """The contents of a YAML file, None if it is not one. Raises UnusableFile for one in which aliases stand for more
    than single words: by a few lines of such a billion words can be meant."""
    import yaml

    text = read_text(path, MOST_YAML_BYTES)
    with judged(path):
        if max(accumulate(_BRACKETS.get(letter, 0) for letter in text), default=0) > MOST_DEEP:
            raise RecursionError  # which PyYAML would come to in the square of the time
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            if node is None:
                return None
            _no_node_twice(node, path, set())
            return loader.construct_document(node)
        except UnusableFile:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
            return None


def _no_node_twice(node: Any, path: str, seen: set[int]) -> None:
    if isinstance(node.value, str):
        return
    if id(node) in seen:
        raise UnusableFile(path, "contains aliases of lists or mappings", "Write them out in full.")
    seen.add(id(node))
    for part in node.value:
        for each in part if isinstance(part, tuple) else (part,):
            _no_node_twice(each, path, seen)


def _judged_names(names: Any, path: str) -> Any:
    """`names` as they are. Raises UnusableFile where one is none, or has a number beyond all classes."""
    listed = names.values() if isinstance(names, dict) else names if isinstance(names, list) else ()
    if any(isinstance(each, dict | list | set) for each in listed):
        raise UnusableFile(path, "has a list as the name of a class", "Give each class a single name.")
    beyond = [key for key in names if isinstance(key, int) and key >= MOST_CLASSES] if isinstance(names, dict) else []
    if beyond:
        words = f"names the class {max(beyond):,}; class numbers go up to {MOST_CLASSES - 1:,}"
        raise UnusableFile(path, words, "Number the classes from 0.")
    return names


def _by_definition(folder: str, about: dict[str, Any]) -> dict[str, Pair]:
    """Where data.yaml says that the images are; their labels lie where `images` in the path is `labels`."""
    found = {}
    for split, key in (("train", "train"), ("val", "val"), ("test", "test")):
        value = about.get(key)
        if not isinstance(value, str):
            continue
        base = str(about.get("path") or "")
        # Paths are often of another machine, or begin with a step too many upwards, as Roboflow's do.
        candidates = [
            os.path.join(folder, base, value),
            os.path.join(folder, value),
            os.path.join(folder, value.lstrip("./")),
        ]
        where = next((os.path.normpath(where) for where in candidates if os.path.exists(where)), None)
        if where is None:
            continue
        names = None if os.path.isdir(where) else read_list(where)
        images = _folder_of_list(where, folder) if names is not None else where
        if images is None:
            continue
        inner = os.path.join(images, "images")
        images = inner if os.path.isdir(inner) else images
        labels = _labels_of(images)
        if labels is not None:
            found[split] = Pair(images, labels, names)
    return found if "train" in found else {}


def _labels_of(images: str) -> str | None:
    """The folder of labels: that of the same path with the last `images` in it replaced, else the same folder."""
    head, found, tail = images.rpartition(f"{os.sep}images")
    if found and os.path.isdir(f"{head}{os.sep}labels{tail}"):
        return f"{head}{os.sep}labels{tail}"
    return images if os.path.isdir(images) else None


def _folder_of_list(path: str, folder: str) -> str | None:
    """The folder of the images that a list names, where they all lie in one."""
    for words in map(str.split, read_text(path, MOST_TABLE_BYTES).splitlines()):
        if not words:
            continue
        for base in (os.path.dirname(path), folder):
            where = os.path.normpath(os.path.join(base, os.path.dirname(words[0])))
            if os.path.isdir(where) and is_image(words[0]):
                return where
    return None


def _darknet(folder: str, folders: Sequence[str]) -> dict[str, Pair]:
    """Darknet's and CVAT's: obj_train_data, with lists of its images beside it."""
    where = next((name for name in folders if name.lower() in ("obj_train_data", "data", "obj")), None)
    if where is None:
        return {}
    inside = os.path.join(folder, where)
    lists = {split: read_list(os.path.join(folder, f"{split}.txt")) for split in ("train", "val", "test")}
    lists["val"] = lists["val"] or read_list(os.path.join(folder, "valid.txt"))
    found = {split: Pair(inside, inside, names) for split, names in lists.items() if names is not None}
    return found if "val" in found else {"": Pair(inside, inside)}


def _names(folder: str, pairs: dict[str, Pair], about: dict[str, Any]) -> list[str] | None:
    """The classes' names, from data.yaml or from a list with one in each line."""
    names = about.get("names")
    if isinstance(names, dict) and all(isinstance(key, int) and key >= 0 for key in names):
        return [shown(str(names.get(number, f"class {number}"))) for number in range(max(names, default=-1) + 1)]
    if isinstance(names, list):
        return [shown(str(name)) for name in names]
    candidates = [folder, *(os.path.dirname(pair.annotations) for pair in pairs.values())]
    for where in dict.fromkeys([*candidates, *(pair.annotations for pair in pairs.values())]):
        for name in NAME_FILES:
            try:
                text = read_text(os.path.join(where, name))
            except OSError:
                continue
            lines = [shown(line.strip()) for line in text.splitlines() if line.strip()]
            if lines:
                return lines
    return None
