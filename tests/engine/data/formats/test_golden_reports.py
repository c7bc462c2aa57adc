"""Reports on intact and on damaged folders of every dataset format, compared with a golden file.

For a damaged folder, the file has the lines that the damage adds to the report, and those that it removes.
`FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/engine/data/formats/test_golden_reports.py` writes the file again. Review its diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.contract.dataset import DatasetReport
from engine.data.formats.registry import detect_kind
from engine.data.inspection.inspector import inspect
from tests.engine.data.formats.test_changed_layouts import cut_a_file_short, drop_a_file, drop_a_folder, move_down
from tests.support.dataset_formats import WRITERS, Writer
from tests.support.dataset_formats.truth import TRUTH

GOLDEN = Path(__file__).with_name("golden_reports.txt")
PARSER_WORDS = re.compile(r"(?:(?<=not valid JSON )|(?<=not valid XML ))\((?:[^()]|\([^()]*\))*\)")
"""Regular expression for the messages of parsers, which differ between versions of Python."""
DAMAGES: dict[str, Callable[[Path], None]] = {
    "without its first file": lambda folder: drop_a_file(folder, 0),
    "without its last file": lambda folder: drop_a_file(folder, -1),
    "without its last folder": lambda folder: drop_a_folder(folder, -1),
    "with half of a text": lambda folder: cut_a_file_short(folder, 0),
    "in a subfolder": lambda folder: move_down(folder, 1),
}


def lines_of(report: DatasetReport, folder: Path) -> Iterator[str]:
    yield f"{report.format} of {report.kind}, {'certain' if report.certain else 'uncertain'}: {report.title}"
    yield from (f"evidence: {text}" for text in report.evidence)
    yield from (f"reading: {each.format}, {each.title}: {each.evidence} {each.against}" for each in report.readings)
    yield f"classes: {', '.join(report.classes)}; {report.channels} channels"
    for split in report.splits:
        counts, objects, shares = (_nonzero(each) for each in (split.counts, split.objects, split.shares))
        sides = [round(side, 2) for side in split.object_sides or ()]
        drawn = " (drawn)" if split.is_drawn else ""
        yield f"{split.name}{drawn}: {split.images} images of {counts}; objects {objects} {sides}; shares {shares}"
    yield from (
        f"value {each.value}: {each.class_name}, {each.share:.3f} of {each.masks}" for each in report.mask_values
    )
    yield from (f"unreadable: {each.path}: {each.reason}" for each in report.unreadable)
    yield from (f"example: {each.class_name}, {each.split}" for each in report.examples)
    for problem in report.problems:
        yield f"{problem.severity} of {problem.field}: {problem}".replace(str(folder), "FOLDER")


def _nonzero(values: dict[str, int] | dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items() if value}


def report_on(writer: Writer, folder: Path, damage: Callable[[Path], None] | None) -> list[str]:
    folder.mkdir()
    writer.write(TRUTH, folder, writer.variants[0])
    if damage is not None:
        damage(folder)
    kind = detect_kind(str(folder)) or "classes"
    report = inspect(str(folder), val_fraction=0.3, seed=0, progress=lambda _done, _total: None, kinds=(kind,))
    return [PARSER_WORDS.sub("…", line) for line in lines_of(report, folder)]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_reports_equal_the_golden_file(writer: Writer, tmp_path: Path) -> None:
    intact = report_on(writer, tmp_path / "intact", None)
    lines = [f"[{writer.name}]", *intact]
    for name, damage in DAMAGES.items():
        damaged = report_on(writer, tmp_path / name, damage)
        lines += [f"({name})", *(f"- {line[:40]}" for line in intact if line not in damaged)]
        lines += [f"+ {line}" for line in damaged if line not in intact]
    section = "\n".join(lines) + "\n\n"
    golden = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    sections = {
        text.partition("]")[0].removeprefix("["): text for text in re.split(r"(?=^\[)", golden, flags=re.M) if text
    }
    if os.environ.get("FOOTPLATE_WRITE_TEXTS"):
        sections[writer.name] = section
        GOLDEN.write_text("".join(text for _, text in sorted(sections.items())), encoding="utf-8")
    assert section.splitlines() == sections.get(writer.name, "").splitlines()
