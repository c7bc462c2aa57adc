"""Samples that a user has marked in an evaluation, kept beside it, and written as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.contract.inference.review import Mark
from engine.runs.evaluations import KeptEvaluation
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from gui.run.model.words import class_words
from gui.sources.evaluations import OpenedEvaluation

MARKS_FILE = "marked.json"
"""In an evaluation's folder: the numbers of the samples that are marked, in the order of `Samples`."""


def read_marks(kept: KeptEvaluation) -> set[int]:
    """The numbers of the marked samples; none where nothing that can be understood is kept."""
    try:
        return set(msgspec.json.decode((kept.folder / MARKS_FILE).read_bytes(), type=list[int]))
    except (OSError, *NOT_DECODED):
        return set()


def write_marks(kept: KeptEvaluation, marked: Sequence[int]) -> None:
    """Keeps them. Raises OSError."""
    paths.write_atomically(kept.folder / MARKS_FILE, msgspec.json.encode(sorted(marked)))


def sample_file(opened: OpenedEvaluation, row: int) -> Path:
    """The file of a sample, whether it is there or not."""
    return Path(opened.evaluation.dataset) / opened.samples.paths[row]


def marks_of(opened: OpenedEvaluation, rows: Sequence[int], suggested: Mapping[int, str]) -> tuple[Mark, ...]:
    """The samples at `rows` as the engine takes them, with the labels that are `suggested` for some."""
    samples, classes = opened.samples, opened.evaluation.classes
    marks = []
    for row in rows:
        label, prediction = (
            class_words(classes, of[row], "") if of is not None else "" for of in (samples.true, samples.predicted)
        )
        reason = f"probably {suggested[row]}" if row in suggested else "marked"
        marks.append(
            Mark(
                file=str(sample_file(opened, row)),
                reason=reason,
                label=label,
                prediction=prediction,
                new_label=suggested.get(row, ""),
            )
        )
    return tuple(marks)


@dataclass(frozen=True)
class MarkedCsv:
    """A line for each mark."""

    marks: tuple[Mark, ...]

    def lines(self) -> Iterator[list[str]]:
        yield [*Mark.__struct_fields__]
        for mark in self.marks:
            yield [getattr(mark, name) for name in Mark.__struct_fields__]
