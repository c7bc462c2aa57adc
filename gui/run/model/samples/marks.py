"""Marked samples of an evaluation, saved in its folder or exported as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.contract.inference.review import Mark
from engine.runs.evaluations import KeptEvaluation
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.run.model.evaluation_format import format_classes
from gui.sources.evaluations import OpenedEvaluation

MARKS_FILE = "marked.json"
"""File in an evaluation's folder with the numbers of the marked samples."""


def read_marks(saved: KeptEvaluation) -> set[int]:
    """Return the numbers of the marked samples; none if the file is missing or damaged."""
    try:
        return set(msgspec.json.decode(read_file(saved.folder / MARKS_FILE, MAX_RESULT_BYTES), type=list[int]))
    except (OSError, *NOT_DECODED):
        return set()


def write_marks(saved: KeptEvaluation, marked: Sequence[int]) -> None:
    """Save the numbers of the marked samples. Raises OSError."""
    paths.write_atomically(saved.folder / MARKS_FILE, msgspec.json.encode(sorted(marked)))


def sample_file(opened: OpenedEvaluation, row: int) -> Path:
    """Return the path of a sample, which may be missing."""
    return Path(opened.evaluation.dataset) / opened.samples.paths[row]


def marks_of(opened: OpenedEvaluation, rows: Sequence[int], suggestions: Mapping[int, str]) -> tuple[Mark, ...]:
    """Return the samples at `rows` as the engine takes them, with suggestions labels."""
    samples, classes = opened.samples, opened.evaluation.classes
    marks = []
    for row in rows:
        label, prediction = (
            format_classes(classes, of[row], "") if of is not None else "" for of in (samples.true, samples.predicted)
        )
        reason = f"probably {suggestions[row]}" if row in suggestions else "marked"
        marks.append(
            Mark(
                file=str(sample_file(opened, row)),
                reason=reason,
                label=label,
                prediction=prediction,
                new_label=suggestions.get(row, ""),
            )
        )
    return tuple(marks)


@dataclass(frozen=True)
class MarkedCsv:
    """Table with a row per mark."""

    marks: tuple[Mark, ...]

    def lines(self) -> Iterator[list[str]]:
        yield [*Mark.__struct_fields__]
        for mark in self.marks:
            yield [getattr(mark, name) for name in Mark.__struct_fields__]
