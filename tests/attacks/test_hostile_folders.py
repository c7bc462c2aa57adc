"""Datasets that try to exhaust the inspector's time or memory. Each inspection must have a limited cost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.bounds import MAX_BYTES, MAX_CPU_S, inspect_folder
from tests.attacks.hostile_folders import FOLDERS

pytestmark = pytest.mark.attacks

SOME = (
    "yaml of laughs within a name", "yaml with class 3 billion", "yaml of brackets", "classes.txt without end", "labels.csv is a pipe",
    "image is a pipe", "mask without end", "edges are a pipe", "idx announces 5 GB", "ply hides its header", "las announces vlrs",
    "laz announces a huge chunk", "laz announces chunks", "las is cut in half", "mat of structs without fields", "tiff of many bands", "tiff of endless pages",
    "csv of a huge field",
    "runs that overflow", "looping link", "links in 2^26 ways", "twins of 300 GB", "postscript",
)  # fmt: skip
"""One folder for each kind of attack. Tests of the other folders are marked long."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "set"
    folder.mkdir()
    yield folder
    # Python's own function can't delete folders that are nested a thousand deep.
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOME else pytest.mark.long) for name in FOLDERS]
)
def test_hostile_folder_is_inspected_at_bounded_cost(folder: Path, name: str) -> None:
    hostile = FOLDERS[name]
    hostile.make(folder)

    inspection = inspect_folder(folder, hostile.kind)

    assert hostile.culprit in inspection.texts
    assert "Traceback" not in inspection.errors
    assert inspection.resident_bytes < MAX_BYTES
    assert inspection.cpu_s < MAX_CPU_S


def test_daily_folders_exist() -> None:
    assert set(SOME) <= set(FOLDERS)
