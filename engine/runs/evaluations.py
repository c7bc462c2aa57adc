"""Evaluations in the folder `evaluations` of a run, and comparisons between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple, TypeVar

import msgspec

from engine.contract.catalogue import predictions_of
from engine.contract.inference.evaluation import (
    CURVES_FILE,
    EVALUATION_FILE,
    PROBABILITIES_FILE,
    RESAMPLES_FILE,
    SAMPLES_FILE,
    Comparison,
    Curves,
    Difference,
    Evaluation,
    Interval,
    McNemar,
    Resamples,
    Samples,
)
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file

FOLDER = "evaluations"

# Decoders that exist before a thread needs them: msgspec crashes if two threads prepare the same type at once.
_EVALUATION = msgspec.json.Decoder(Evaluation)
_PART_DECODERS: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Samples, Curves, Resamples)
}

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class DamagedEvaluation(ValueError):  # noqa: N818 - describes the file
    """Raised when a file of a saved evaluation is missing or invalid. The message gives the details."""


class SavedEvaluation(NamedTuple):
    """Saved evaluation with the folder that contains it."""

    folder: Path
    evaluation: Evaluation

    @property
    def probabilities_file(self) -> Path:
        """Path of the file with label probabilities (.npy), which exists only for tasks with classes or labels."""
        return self.folder / PROBABILITIES_FILE

    def read_samples(self) -> Samples:
        """Read the per-sample results. Raises DamagedEvaluation."""
        return _read_part(self.folder / SAMPLES_FILE, Samples)

    def read_curves(self) -> Curves:
        """Read the precision-recall and ROC curves. The result is empty for tasks without curves.

        Raises DamagedEvaluation.
        """
        file = self.folder / CURVES_FILE
        return _read_part(file, Curves) if file.exists() else Curves()

    def read_resamples(self) -> Resamples:
        """Read the metrics of the bootstrap resamples. Raises DamagedEvaluation."""
        return _read_part(self.folder / RESAMPLES_FILE, Resamples)


def read_evaluation(folder: Path) -> SavedEvaluation:
    """Read the evaluation in `folder`. Raises DamagedEvaluation."""
    file = folder / EVALUATION_FILE
    try:
        return SavedEvaluation(folder, _EVALUATION.decode(read_file(file)))
    except (OSError, *NOT_DECODED) as error:
        raise _create_damage_error(file, error) from error


def read_evaluations(run_folder: Path) -> list[SavedEvaluation]:
    """Read all undamaged evaluations of a run, newest first."""
    found = []
    for file in (run_folder / FOLDER).glob(f"[!.]*/{EVALUATION_FILE}"):  # unfinished ones start with a dot
        try:
            found.append(read_evaluation(file.parent))
        except DamagedEvaluation:
            continue
    return sorted(found, key=lambda saved: (saved.evaluation.date, saved.evaluation.id), reverse=True)


def _read_part(file: Path, kind: type[_Struct]) -> _Struct:
    """Read one file of a saved evaluation, whose content has the type `kind`. Raises DamagedEvaluation."""
    try:
        decoded: _Struct = _PART_DECODERS[kind].decode(read_file(file, MAX_RESULT_BYTES))
        return decoded
    except (OSError, *NOT_DECODED) as error:
        raise _create_damage_error(file, error) from error


def _create_damage_error(file: Path, error: Exception) -> DamagedEvaluation:
    """Create the exception for a file of an evaluation that could not be read or decoded because of `error`."""
    why = error.strerror if isinstance(error, OSError) else str(error)
    return DamagedEvaluation(f"{file} can't be read: {why}")


_MIN_RESAMPLES = 25
"""Minimum number of resamples with defined values for a confidence interval."""


class NotComparable(ValueError):  # noqa: N818 - describes the evaluations
    """Raised when two evaluations can't be compared. The message gives the reason and the remedy."""


def compare(first: SavedEvaluation, second: SavedEvaluation) -> Comparison:
    """Compare two evaluations of the same split of the same dataset. Raises NotComparable and DamagedEvaluation."""
    before, after = first.evaluation, second.evaluation
    for name, plural in (("task", "tasks"), ("dataset", "folders"), ("split", "splits")):
        value_1, value_2 = getattr(before, name), getattr(after, name)
        if value_1 != value_2:
            message = f"The evaluations are of different {plural} ({value_1} and {value_2})."
            raise NotComparable(f"{message} Evaluate both models on the same split of the same folder.")
    samples_1, samples_2 = first.read_samples(), second.read_samples()
    are_paired = samples_1.paths == samples_2.paths  # otherwise resamples contain different samples
    resamples_1, resamples_2 = (
        (first.read_resamples().measures, second.read_resamples().measures) if are_paired else ({}, {})
    )
    differences = []
    for entry in before.entries:
        if entry.id in before.measures and entry.id in after.measures:
            value_1, value_2 = before.measures[entry.id].value, after.measures[entry.id].value
            interval = _compute_interval(
                value_2 - value_1, resamples_1.get(entry.id, ()), resamples_2.get(entry.id, ())
            )
            differences.append(Difference(entry=entry, first=value_1, second=value_2, difference=interval))
    mcnemar, only_first, only_second = None, None, None
    if predictions_of(before.task) in ("class", "labels"):  # McNemar's test needs right and wrong predictions
        only_first = _find_correct_only_in(samples_1, samples_2)
        only_second = _find_correct_only_in(samples_2, samples_1)
        mcnemar = compute_mcnemar_test(len(only_first), len(only_second))
    return Comparison(
        first=before,
        second=after,
        samples=len(set(_list_sample_keys(samples_1)) & set(_list_sample_keys(samples_2))),
        differences=tuple(differences),
        mcnemar=mcnemar,
        only_first=only_first,
        only_second=only_second,
    )


def compute_mcnemar_test(only_first: int, only_second: int) -> McNemar:
    """Compute McNemar's exact test for two models on the same samples.

    The arguments are the numbers of samples for which only the first, or only the second, model is correct.
    """
    count, fewer = only_first + only_second, min(only_first, only_second)
    logs = (_compute_log_probability(count, number) for number in range(fewer + 1))
    return McNemar(only_first=only_first, only_second=only_second, p=min(1.0, 2 * sum(map(math.exp, logs))))


def _compute_log_probability(count: int, number: int) -> float:
    """Return the logarithm of the probability that `number` of `count` tosses of a fair coin show heads."""
    return math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1) - count * math.log(2.0)


def _compute_interval(value: float, first: Sequence[float | None], second: Sequence[float | None]) -> Interval:
    """Return `value`, a difference, with its 95% interval from paired resamples (percentile bootstrap).

    `first` and `second` are the values in the resamples of both evaluations.
    """
    pairs = zip(first, second, strict=False)  # because of a time limit, their numbers may differ
    differences = [after - before for before, after in pairs if before is not None and after is not None]
    if len(differences) < _MIN_RESAMPLES:
        return Interval(value)
    edges = quantiles(differences, n=40, method="inclusive")  # the first is the 2.5% quantile
    return Interval(value, edges[0], edges[-1])


def _list_sample_keys(samples: Samples) -> list[tuple[str, int]]:
    """Return a unique key for each sample: its path, and a number that distinguishes samples with equal paths."""
    counts: Counter[str] = Counter()
    keys = []
    for path in samples.paths:
        keys.append((path, counts[path]))
        counts[path] += 1
    return keys


def _find_correct_only_in(samples: Samples, others: Samples) -> tuple[str, ...]:
    """Return the paths of samples whose predictions are completely correct in `samples`, but not in `others`."""
    correct, correct_in_others = _check_each_sample(samples), _check_each_sample(others)
    keys = (key for key, is_correct in correct.items() if is_correct and correct_in_others.get(key) is False)
    return tuple(path for path, _ in keys)


def _check_each_sample(samples: Samples) -> dict[tuple[str, int], bool]:
    """Return, for the key of each sample, True if its prediction is completely correct."""
    return {key: fraction == 1 for key, fraction in zip(_list_sample_keys(samples), samples.correct or (), strict=True)}
