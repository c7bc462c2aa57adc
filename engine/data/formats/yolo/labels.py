"""Lines in YOLO text files, and the meaning of their columns. Torch-free.

A line has a class number, followed by one of these (docs.ultralytics.com, "Datasets"): center, width and height of a
box as fractions of the image size; such a box and keypoints with 2 or 3 values each; or the points of an outline, with
four points for a rotated box. The confidence of a detector may follow.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit, read_number
from engine.data.formats.shared.text_files import Parsed, parse_lines
from engine.system.format import counted

MAX_CLASSES = 100_000
"""Upper limit for class numbers, exclusive. Lines with larger numbers are rejected."""
BOX_VALUES = 4
QUAD_VALUES = 8  # of four corners
MIN_OUTLINE_VALUES = 6  # of three points
MARGIN = 0.1
"""Maximum distance of annotations beyond the image's edges, as a fraction of the image size."""
CLEAR = 0.95
"""Minimum fraction of YOLO lines that must fit the chosen meaning of the columns."""
UNCLEAR = 0.8
"""Minimum fraction of lines that fit another meaning of the columns for the lines to be ambiguous."""
MIN_LINES = 5
"""Minimum number of lines that fit only the chosen meaning of the columns and no other."""

_DECIMAL_COMMA = re.compile(r"-?\d+(,\d+)?")
_VISIBILITY = {0.0, 1.0, 2.0}

Points = npt.NDArray[np.float64]


class Row(NamedTuple):
    """Line in a text file: its line number, a class number (`label`), and the values after it."""

    number: int
    label: int
    values: tuple[float, ...]


class Columns(NamedTuple):
    """Meaning of the columns in lines that are longer than a box with a confidence.

    Attributes:
        keypoint_values: Number of values of all keypoints after a box, or 0 if the lines are outlines.
        scored: True if a confidence follows each outline.
    """

    keypoint_values: int = 0
    scored: bool = False

    def box(self, row: Row) -> tuple[float, float, float, float] | None:
        """Return the center (x, y), width and height of the box in a line, or None if the line is an outline.

        Raises Unfit for other lines.
        """
        count = len(row.values)
        is_only_box = count in (BOX_VALUES, BOX_VALUES + 1)  # without or with a confidence
        if not is_only_box and not self.keypoint_values:
            return None
        if not is_only_box and count - BOX_VALUES - self.keypoint_values not in (0, 1):
            expected = f"{BOX_VALUES + 1} or {BOX_VALUES + 1 + self.keypoint_values}"
            raise Unfit(f"line {row.number} has {counted(count + 1, 'number')}; a box with key points needs {expected}")
        return self._require_fractions(row, row.values[:BOX_VALUES])  # type: ignore[return-value]

    def outline(self, row: Row) -> Points:
        """Return the points of the outline in a line of a YOLO file, float64 [k, 2] with x and y.

        Raises Unfit if the line is not an outline.
        """
        values = row.values[:-1] if self.scored and len(row.values) % 2 else row.values
        if len(values) < MIN_OUTLINE_VALUES or len(values) % 2:
            raise Unfit(
                f"line {row.number} has {counted(len(row.values) + 1, 'number')}; a box needs 5, an outline an odd count"
            )
        return np.array(self._require_fractions(row, values)).reshape(-1, 2)

    @staticmethod
    def _require_fractions(row: Row, values: tuple[float, ...]) -> tuple[float, ...]:
        """Return `values`. Raises Unfit if one of them is too far from 0..1 for a fraction of the image size."""
        for value in values:
            if not -1 <= value <= 2:
                raise Unfit(f"line {row.number} contains {value:g}, which is not a fraction of the image")
        return values


def read_lines(path: str) -> Parsed[Row]:
    """Parse a text file in YOLO format and return its lines. Raises UnusableFile or OSError."""
    return parse_lines(path, _parse_line, key=lambda row: row[1:])


def _parse_line(line: str, number: int) -> Row | None:
    """Return the object in line `number` of a file, or None if the line is blank. Raises Unfit for any other line."""
    tokens = split_line(line)
    if not tokens:
        return None
    row = Row(number, _parse_label(tokens[0], number), tuple(read_number(token, number) for token in tokens[1:]))
    if len(row.values) < BOX_VALUES:
        raise Unfit(f"line {number} has {counted(len(tokens), 'number')}; a box needs 5")
    return row


def split_line(line: str) -> list[str]:
    """Split a line at spaces, tabs, semicolons or commas.

    If the line has other separators and no periods, commas inside numbers are decimal separators.
    """
    tokens = line.replace(";", " ").split()
    if len(tokens) > BOX_VALUES and "," in line and all(map(_DECIMAL_COMMA.fullmatch, tokens)):
        return [token.replace(",", ".") for token in tokens]
    return line.replace(";", " ").replace(",", " ").split()


def _parse_label(token: str, line: int) -> int:
    """Convert the first word of line `line` to a class number. Raises Unfit if it isn't one."""
    try:
        number = read_number(token, line)
    except Unfit:
        raise Unfit(f"line {line} begins with {token[:40]!r}, not with a class number") from None
    if not 0 <= number < MAX_CLASSES or number != int(number):
        raise Unfit(f"line {line} begins with {token[:40]}, not with a class number")
    return int(number)


def infer_columns(rows: Sequence[Row], keypoint_shape: tuple[int, int] | None) -> list[Columns]:
    """Return the possible meanings of the columns, most likely first.

    There are several if the lines are ambiguous. `keypoint_shape` is `kpt_shape` in data.yaml, the number of keypoints
    and of values for each, or None if data.yaml lacks it.
    """
    # Number of lines by their number of values, for lines that are longer than a box with a confidence.
    counts = Counter(len(row.values) for row in rows if len(row.values) > BOX_VALUES + 1)
    if keypoint_shape is not None:
        values = keypoint_shape[0] * keypoint_shape[1]
        # A `kpt_shape` that no line fits is ignored.
        if not counts or counts[BOX_VALUES + values] + counts[BOX_VALUES + values + 1]:
            return [Columns(keypoint_values=values)]
    if not counts:
        return [Columns()]
    # An outline has an even number of values, x and y of each point. An odd number means that a confidence follows. Box
    # lines without a confidence show that the lines of this dataset have none.
    odd_lines = sum(number for length, number in counts.items() if length % 2)
    has_plain_boxes = any(len(row.values) == BOX_VALUES for row in rows)
    outlines = Columns(scored=2 * odd_lines > counts.total() and not has_plain_boxes)
    if 2 * counts.total() < len(rows) and counts.total() < MIN_LINES:  # ignore a few stray lines
        return [outlines]
    if len(counts) > 1:  # each pose has the same number of keypoints
        return [outlines]
    (length,) = counts
    return _infer_from_length([row for row in rows if len(row.values) == length], length, outlines)


def _infer_from_length(rows: Sequence[Row], count: int, outlines: Columns) -> list[Columns]:
    """Return the possible meanings of lines that all have `count` values, most likely first.

    `outlines` is the meaning of the columns if the lines are outlines.
    """
    values = np.array([row.values for row in rows])
    is_outline = _is_outline(values[:, : count - count % 2])  # an odd number of values ends with a confidence
    best: tuple[Columns, npt.NDArray[np.bool_]] | None = None  # keypoints that most lines fit, and these lines
    for per_point in (3, 2):
        for length in (count, count - 1):  # without and with a confidence
            if length <= BOX_VALUES or (length - BOX_VALUES) % per_point:
                continue
            is_pose = _is_pose(values[:, :length], per_point)
            if per_point == 3 and length == count and set(values[:, BOX_VALUES + 2 :: 3].flat) <= _VISIBILITY:
                return [Columns(keypoint_values=length - BOX_VALUES)]  # every third value is a visibility
            if best is None or is_pose.sum() > best[1].sum():
                best = Columns(keypoint_values=length - BOX_VALUES), is_pose
    if best is None:
        return [outlines]
    poses, is_pose = best
    if is_pose.mean() < UNCLEAR and is_outline.mean() >= CLEAR:
        return [outlines]
    if is_pose.mean() >= CLEAR and is_outline.mean() < UNCLEAR and (is_pose & ~is_outline).sum() >= MIN_LINES:
        return [poses]
    if count == QUAD_VALUES and is_outline.mean() >= CLEAR:  # rotated boxes are far more common than two keypoints
        return [outlines]
    return [poses, outlines] if is_pose.mean() > is_outline.mean() else [outlines, poses]


def _is_pose(values: npt.NDArray[np.float64], per_point: int) -> npt.NDArray[np.bool_]:
    """Return True for each line that seems to be a box with keypoints, bool [n].

    Such a line, float64 [n, k], begins with a box inside the image that contains the points after it. Each point has
    `per_point` values.
    """
    center, size = values[:, None, :2], values[:, None, 2:BOX_VALUES]
    points = values[:, BOX_VALUES:].reshape(len(values), -1, per_point)
    is_hidden = np.all(points[..., :2] <= 0, axis=2)
    # A point may exceed the box by a tenth of its size. Coordinates may be rounded by 0.01.
    is_in_box = np.all(np.abs(points[..., :2] - center) <= size / 2 + size / 10 + 0.01, axis=2)
    box_in_image = (size > 0) & (np.abs(center - 0.5) + size / 2 <= 0.5 + 0.01)
    is_pose = np.all(box_in_image, axis=(1, 2)) & np.all(is_in_box | is_hidden, axis=1)
    if per_point == 3:
        visibility = points[..., 2]
        is_pose &= np.all((visibility >= 0) & (visibility <= 2), axis=1)
    return np.asarray(is_pose)


def _is_outline(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return True for each line that seems to be an outline, bool [n].

    In such a line, float64 [n, k], all points are inside the image, and the second one is near the others. In a line
    with a box, the second pair of numbers is the size of the box.
    """
    points = values.reshape(len(values), -1, 2)
    others = np.delete(points, 1, axis=1)
    low, high = others.min(1), others.max(1)
    reach = (high - low).max(1, keepdims=True) + 1e-3
    is_near = (points[:, 1] >= low - reach) & (points[:, 1] <= high + reach)
    in_image = (points >= -0.01) & (points <= 1.01)  # with a tolerance for rounding
    return np.asarray(np.all(is_near, axis=1) & np.all(in_image, axis=(1, 2)))
