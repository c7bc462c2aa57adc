"""Samples that a user has marked in an evaluation, kept beside it, and written as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

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
    paths.put_into_place(kept.folder / MARKS_FILE, msgspec.json.encode(sorted(marked)))


def sample_file(opened: OpenedEvaluation, row: int) -> Path:
    """The file of a sample, whether it is there or not."""
    return Path(opened.evaluation.dataset) / opened.samples.paths[row]


@dataclass(frozen=True)
class MarkedCsv:
    """The marked samples: a line for each, with what the dataset and the model say of it."""

    opened: OpenedEvaluation
    rows: tuple[int, ...]

    def lines(self) -> Iterator[list[str]]:
        samples, classes = self.opened.samples, self.opened.evaluation.classes
        yield ["file", "split", "label", "prediction", "confidence", "loss"]
        for row in self.rows:
            label, prediction = (
                class_words(classes, of[row], "") if of is not None else "" for of in (samples.true, samples.predicted)
            )
            numbers = (samples.confidence, samples.losses)
            yield [
                str(sample_file(self.opened, row)),
                samples.splits[row],
                label,
                prediction,
                *("" if column is None or column[row] != column[row] else f"{column[row]:.6g}" for column in numbers),
            ]
