"""Datasets page of the user guide: formats, layouts and image files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import resources
from engine.data.decoding.image_files import EXTENSIONS
from engine.data.formats.registry import FORMATS, KINDS
from engine.data.formats.tree import SPLIT_NAMES

PAGE = (Path(resources.__path__[0]) / "docs/datasets.md").read_text(encoding="utf-8")
WIDEST = 64
"""Maximum number of characters per line of a layout example.

Longer lines would require a horizontal scroll bar in the help window.
"""
HEADING = re.compile(r"^### .*\(`(\w+)`\)$", re.MULTILINE)
FOLDERS_OR_FILES = re.compile(r"/|\.\w+|ubyte|any files")


def find_section(title: str) -> str:
    """Return the text below a second-level heading of the guide."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def find_table_rows(title: str) -> list[list[str]]:
    """Return the cells of each table row in a section of the guide, without the header row."""
    lines = [line.strip("|").split(" | ") for line in find_section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines if not cells[0].startswith("---")][1:]


def find_layouts() -> list[tuple[str, str]]:
    """Return the format id and the layout example in each section of the guide about a format."""
    _, *parts = HEADING.split(PAGE)
    names, texts = parts[::2], parts[1::2]
    blocks = [text.partition("```text\n")[2].partition("```")[0] for text in texts]
    return list(zip(names, blocks, strict=True))


TABLE = {cells[0].strip("`"): cells for cells in find_table_rows("All formats")}
LAYOUTS = dict(find_layouts())


@pytest.mark.parametrize("name", list(FORMATS.built_in))
def test_guide_lists_each_format_with_its_kinds(name: str) -> None:
    kinds = TABLE[name][2]
    assert (kinds.split(", ") if kinds != "none" else []) == list(FORMATS.built_in[name].kinds)
    assert all(TABLE[name][1:])


@pytest.mark.parametrize("name", [name for name in FORMATS.built_in if FORMATS.built_in[name].kinds])
def test_guide_shows_a_narrow_layout_of_each_format(name: str) -> None:
    lines = LAYOUTS[name].splitlines()
    assert [line for line in lines if len(line) > WIDEST] == []
    assert FOLDERS_OR_FILES.search(lines[0])


def test_guide_names_no_format_that_does_not_exist() -> None:
    assert set(TABLE) <= set(FORMATS.built_in)
    assert set(LAYOUTS) <= set(TABLE)
    assert len(find_layouts()) == len(LAYOUTS)


def test_guide_explains_each_kind_of_annotations() -> None:
    assert {cells[0] for cells in find_table_rows("Kinds of annotations")} == set(KINDS)


def test_guide_names_the_endings_of_image_files() -> None:
    named = {ending for cells in find_table_rows("Image files") for ending in re.findall(r"`(\.\w+)`", cells[1])}
    assert named == set(EXTENSIONS)


def test_guide_names_the_folders_of_splits() -> None:
    named = [tuple(re.findall(r"`(\w+)`", cells[1])) for cells in find_table_rows("Splits")]
    assert named == list(SPLIT_NAMES.values())
