"""Evaluations stored with a run, in its folder `evaluations` (see `engine.contract.inference.evaluation`)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from engine.contract.inference.evaluation import (
    CURVES_FILE,
    EVALUATION_FILE,
    PROBABILITIES_FILE,
    RESAMPLES_FILE,
    SAMPLES_FILE,
    Curves,
    Evaluation,
    Resamples,
    Samples,
)
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file

FOLDER = "evaluations"

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class DamagedEvaluation(ValueError):  # noqa: N818 - it is the file's fault
    """A file of an evaluation is missing or invalid, as the text says."""


class KeptEvaluation(NamedTuple):
    """An evaluation and its `folder`."""

    folder: Path
    evaluation: Evaluation

    @property
    def probabilities_file(self) -> Path:
        """File of the label probabilities (.npy); only label tasks have it."""
        return self.folder / PROBABILITIES_FILE

    def samples(self) -> Samples:
        """Read the results per sample. Raises DamagedEvaluation."""
        return _decoded(self.folder / SAMPLES_FILE, Samples)

    def curves(self) -> Curves:
        """Read the curves; empty for a task without any. Raises DamagedEvaluation."""
        file = self.folder / CURVES_FILE
        return _decoded(file, Curves) if file.exists() else Curves()

    def resamples(self) -> Resamples:
        """Read the metrics of the bootstrap's resamples. Raises DamagedEvaluation."""
        return _decoded(self.folder / RESAMPLES_FILE, Resamples)


def read_evaluation(folder: Path) -> KeptEvaluation:
    """Read the evaluation in `folder`. Raises DamagedEvaluation."""
    file = folder / EVALUATION_FILE
    try:
        return KeptEvaluation(folder, msgspec.json.decode(read_file(file), type=Evaluation))
    except (OSError, *NOT_DECODED) as error:
        raise _damaged(file, error) from error


def evaluations_of(run_folder: Path) -> list[KeptEvaluation]:
    """Read the evaluations of a run, the newest first, without damaged ones."""
    found = []
    for file in (run_folder / FOLDER).glob(f"[!.]*/{EVALUATION_FILE}"):  # one in the making begins with a dot
        try:
            found.append(read_evaluation(file.parent))
        except DamagedEvaluation:
            continue
    return sorted(found, key=lambda kept: (kept.evaluation.date, kept.evaluation.id), reverse=True)


def _decoded(file: Path, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.msgpack.decode(read_file(file, MAX_RESULT_BYTES), type=kind)
    except (OSError, *NOT_DECODED) as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, error: Exception) -> DamagedEvaluation:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return DamagedEvaluation(f"{file} can't be read: {why}")
