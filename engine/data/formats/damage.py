"""Damaged or empty annotation files, which explain why no format recognizes a folder. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from engine.data.decoding.reading import Unfit, describe_failure, read_text, read_xml
from engine.data.formats.shared.json_files import MAX_FILES, SAMPLED, find_json_files, parse_file
from engine.data.formats.shared.tables import find_tables, open_table
from engine.data.formats.tree import Tree, suffix
from engine.data.formats.yolo.definition import MAX_YAML_BYTES, read_yaml
from engine.data.splits import printable, sample_evenly
from engine.system.regular_files import UnusableFile

_TABLES, _YAML = (".csv", ".tsv", ".jsonl", ".ndjson"), (".yaml", ".yml")


class _Lists(msgspec.Struct):
    """Top-level JSON object of COCO and similar formats, whose fields are optional but must be lists."""

    images: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    annotations: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_LIST = msgspec.json.Decoder(list[Any])
_OBJECT = msgspec.json.Decoder(_Lists)


def describe_damage(tree: Tree) -> str:
    """Check some of the annotation files. Return a sentence about the first damaged one, or "" if there is none."""
    for name in _iterate_annotation_files(tree):
        try:
            _CHECKS.get(suffix(name), _check_table)(tree.path(name))
        except (OSError, UnusableFile, Unfit) as error:
            return f"{printable(name)} can't be read: {describe_failure(error)}."
    return ""


def _iterate_annotation_files(tree: Tree) -> Iterator[str]:
    """Yield the files to check for damage: a limited number of the JSON, XML, YAML and table files of a dataset."""
    yield from islice((largest for largest, *_ in find_json_files(tree).values()), MAX_FILES)  # one of each folder
    yield from sample_evenly(list(tree.find(".xml")), SAMPLED)
    tables = find_tables(tree, (*_TABLES, *_YAML))
    yield from islice((os.path.join(folder, name) for folder, name in tables), MAX_FILES)


def _check_json(path: str) -> None:
    """Raise Unfit, OSError or UnusableFile if a JSON file is unreadable, or can't be from any supported format."""
    start = bytes(parse_file(path, _ANY_JSON)).lstrip()[:1]
    if start == b"{":
        parse_file(path, _OBJECT)
    elif start != b"[" or not any(isinstance(entry, dict | list) for entry in parse_file(path, _LIST)):
        raise Unfit("it has neither an object nor a list of objects")


def _check_yaml(path: str) -> None:
    """Raise Unfit if a YAML file is empty or has no keys with values, and OSError or UnusableFile if it can't be read."""
    if not read_yaml(path):
        raise Unfit("it has no keys with values" if read_text(path, MAX_YAML_BYTES).strip() else "it is empty")


def _check_table(path: str) -> None:
    """Raise Unfit, OSError or UnusableFile if a table has no rows."""
    table = open_table(path, head=True)
    if table is None or next(iter(table.rows()), None) is None:
        raise Unfit("it has no rows" if os.path.getsize(path) else "it is empty")


_CHECKS = {".json": _check_json, ".xml": read_xml, **dict.fromkeys(_YAML, _check_yaml)}
