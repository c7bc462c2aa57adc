"""Generator of randomly damaged datasets.

One file in a valid folder is damaged, in any format. The damage is in places that readers trust: numbers in headers,
lengths, the ends of files, and words of text.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.attacks import hostile_folders as honest
from tests.attacks.structures import SUFFIXES, damage_structure
from tests.support.dataset_formats import cvat, label_studio, labelme, supervisely
from tests.support.dataset_formats.truth import TRUTH

KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "images by class": ("classes", honest.write_class_folders),
    "jpegs by class": ("classes", honest.write_jpegs),
    "bands": ("classes", honest.write_bands),
    "idx": ("classes", honest.write_idx_files),
    "masks": ("masks", honest.write_masks),
    "numbered masks": ("instances", honest.write_masks),
    "edges": ("edges", honest.write_edges),
    "edges of Matlab's": ("edges", honest.write_mats),
    "yolo": ("boxes", honest.write_yolo),
    "voc": ("boxes", honest.write_voc),
    "cvat": ("instances", lambda folder: cvat.write(TRUTH, folder, "masks")),
    "labelme": ("instances", lambda folder: labelme.write(TRUTH, folder, "masks")),
    "label studio": ("instances", lambda folder: label_studio.write(TRUTH, folder, "brushes")),
    "supervisely": ("instances", lambda folder: supervisely.write(TRUTH, folder, "bitmaps")),
    "kitti": ("boxes", honest.write_kitti),
    "coco": ("boxes", honest.write_coco),
    "coco's outlines": ("instances", honest.write_coco),
    "coco's runs": ("instances", honest.write_coco_runs),
    "coco by split": ("boxes", honest.write_coco_runs),
    "yolo by yaml": ("boxes", honest.write_yaml),
    "table": ("labels", honest.write_table),
    "json table": ("labels", honest.write_json_table),
    "json rows": ("labels", honest.write_json_rows),
    "tiles": ("labels", honest.write_tiles),
    "masks of ArcGIS": ("masks", honest.write_definition),
    "bands of ArcGIS": ("classes", honest.write_statistics),
    "ply": ("points", honest.write_clouds),
    "las": ("points", honest.write_las_clouds),
    "laz": ("points", lambda folder: honest.write_las_clouds(folder, ".laz")),
}
"""Kind of annotations and function that creates the folder, for each kind of valid folder."""

_MAX_BYTES = 1 << 21
_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
_VALUES = (
    b"99999999999", b"-1", b"nan", b"1e400", b"\0", b"[" * 3000, b"{" * 3000, b'"', b"\xff\xfe", b"\\ud800", b"../../../etc", b"&a [*a]",
    b"null", b"{}", b"[]", b"x" * 140_000, b"\n" * 5000, b"0x1F", b"true", b"9" * 5000,
)  # fmt: skip


STRUCTURED = 0.75
"""Probability that the damage is in the structure of a JSON, XML or YAML file, for folders that contain one."""


def damage_file(folder: Path, seed: int) -> Path:
    """Damage a random file of a valid folder according to `seed` and return its path."""
    drawn = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    structured = [path for path in files if path.suffix in SUFFIXES]
    if structured and drawn.random() < STRUCTURED:
        path = drawn.choice(structured)
        damage_structure(path, drawn)
        return path
    path = drawn.choice(files)
    content = bytearray(path.read_bytes())
    for _ in range(drawn.choice((1, 1, 1, 2, 3, 8))):
        content = bytearray(drawn.choice(_DAMAGE)(drawn, content))
    path.write_bytes(content)
    return path


def _draw_offset(drawn: random.Random, content: bytearray) -> int:
    """Return a random offset into `content`, usually near the start (where headers are) or near the end."""
    reach = drawn.choice((16, 64, 400, len(content)))
    place = drawn.randrange(max(1, min(reach, len(content))))
    return place if drawn.random() < 0.8 else max(0, len(content) - 1 - place)


def _cut(drawn: random.Random, content: bytearray) -> bytes:
    return bytes(content[: _draw_offset(drawn, content)])


def _flip(drawn: random.Random, content: bytearray) -> bytes:
    if content:
        content[_draw_offset(drawn, content)] ^= 1 << drawn.randrange(8)
    return bytes(content)


def _number(drawn: random.Random, content: bytearray) -> bytes:
    size, kind = drawn.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
    place = _draw_offset(drawn, content)
    if place + size <= len(content):
        value = drawn.choice(_NUMBERS) & (1 << 8 * size) - 1
        struct.pack_into(drawn.choice("<>") + kind, content, place, value)
    return bytes(content)


def _replace_word(drawn: random.Random, content: bytearray) -> bytes:
    """Replace the bytes between two spaces or two quotation marks by a random value. Return the new content."""
    pieces = bytes(content).split(b" ") if drawn.random() < 0.5 else bytes(content).split(b'"')
    mark = b" " if len(bytes(content).split(b" ")) == len(pieces) else b'"'
    pieces[drawn.randrange(len(pieces))] = drawn.choice(_VALUES)
    return mark.join(pieces)


def _insert(drawn: random.Random, content: bytearray) -> bytes:
    place = _draw_offset(drawn, content)
    return bytes(content[:place]) + drawn.choice(_VALUES) + bytes(content[place:])


def _repeat(drawn: random.Random, content: bytearray) -> bytes:
    place, end = sorted((_draw_offset(drawn, content), _draw_offset(drawn, content)))
    times = min(drawn.choice((1, 50, 2000)), _MAX_BYTES // max(1, end - place))
    return bytes(content[:end]) + bytes(content[place:end]) * times + bytes(content[end:])


def _nothing(drawn: random.Random, content: bytearray) -> bytes:
    return b""


_DAMAGE = (_cut, _flip, _flip, _number, _number, _number, _replace_word, _insert, _repeat, _nothing)


class ValidFolders:
    """Cache of valid dataset folders. Copying them is faster than creating them."""

    def __init__(self, place: Path) -> None:
        self._place = place
        for kind, (_, make) in KINDS.items():
            (place / kind).mkdir(parents=True)
            make(place / kind)

    def copy(self, kind: str, to: Path) -> str:
        """Copy a valid folder (a key of `KINDS`) to `to` and return the kind of its annotations."""
        shutil.copytree(self._place / kind, to)
        return KINDS[kind][0]
