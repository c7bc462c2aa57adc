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
_PARTS: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Samples, Curves, Resamples)
}

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class DamagedEvaluation(ValueError):  # noqa: N818 - describes the file
    """Raised when a file of an evaluation is missing or invalid. The message gives the details."""


class KeptEvaluation(NamedTuple):
    """Saved evaluation with the folder that contains it."""

    folder: Path
    evaluation: Evaluation

    @property
    def probabilities_file(self) -> Path:
        """Path of the file with label probabilities (.npy), which exists only for tasks with classes or labels."""
        return self.folder / PROBABILITIES_FILE

    def samples(self) -> Samples:
        """Read the per-sample results. Raises DamagedEvaluation."""
        return _decoded(self.folder / SAMPLES_FILE, Samples)

    def curves(self) -> Curves:
        """Read the curves. The result is empty for tasks without curves. Raises DamagedEvaluation."""
        file = self.folder / CURVES_FILE
        return _decoded(file, Curves) if file.exists() else Curves()

    def resamples(self) -> Resamples:
        """Read the metrics of the bootstrap resamples. Raises DamagedEvaluation."""
        return _decoded(self.folder / RESAMPLES_FILE, Resamples)


def read_evaluation(folder: Path) -> KeptEvaluation:
    """Read the evaluation in `folder`. Raises DamagedEvaluation."""
    file = folder / EVALUATION_FILE
    try:
        return KeptEvaluation(folder, _EVALUATION.decode(read_file(file)))
    except (OSError, *NOT_DECODED) as error:
        raise _damaged(file, error) from error


def evaluations_of(run_folder: Path) -> list[KeptEvaluation]:
    """Read all undamaged evaluations of a run, newest first."""
    found = []
    for file in (run_folder / FOLDER).glob(f"[!.]*/{EVALUATION_FILE}"):  # unfinished ones start with a dot
        try:
            found.append(read_evaluation(file.parent))
        except DamagedEvaluation:
            continue
    return sorted(found, key=lambda kept: (kept.evaluation.date, kept.evaluation.id), reverse=True)


def _decoded(file: Path, kind: type[_Struct]) -> _Struct:
    try:
        decoded: _Struct = _PARTS[kind].decode(read_file(file, MAX_RESULT_BYTES))
        return decoded
    except (OSError, *NOT_DECODED) as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, error: Exception) -> DamagedEvaluation:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return DamagedEvaluation(f"{file} can't be read: {why}")


_MIN_DRAWS = 25
"""Minimum number of resamples with defined values for a confidence interval."""


class NotComparable(ValueError):  # noqa: N818 - describes the evaluations
    """Raised when two evaluations can't be compared. The message gives the reason and the remedy."""


def compare(first: KeptEvaluation, second: KeptEvaluation) -> Comparison:
    """Compare two evaluations of the same split of the same dataset. Raises NotComparable and DamagedEvaluation."""
    one, other = first.evaluation, second.evaluation
    for name, what in (("task", "tasks"), ("dataset", "folders"), ("split", "splits")):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            message = f"The evaluations are of different {what} ({values[0]} and {values[1]})."
            raise NotComparable(f"{message} Evaluate both models on the same split of the same folder.")
    samples = first.samples(), second.samples()
    paired = samples[0].paths == samples[1].paths
    draws = (first.resamples().measures, second.resamples().measures) if paired else ({}, {})
    differences = []
    for entry in one.entries:
        if entry.id in one.measures and entry.id in other.measures:
            values = one.measures[entry.id].value, other.measures[entry.id].value
            between = _interval(values[1] - values[0], draws[0].get(entry.id, ()), draws[1].get(entry.id, ()))
            differences.append(Difference(entry=entry, first=values[0], second=values[1], difference=between))
    mcnemar, only_first, only_second = None, None, None
    if predictions_of(one.task) in ("class", "labels"):
        only_first, only_second = _only(*samples), _only(*reversed(samples))
        mcnemar = mcnemar_test(len(only_first), len(only_second))
    return Comparison(
        first=one,
        second=other,
        samples=len(set(_keys(samples[0])) & set(_keys(samples[1]))),
        differences=tuple(differences),
        mcnemar=mcnemar,
        only_first=only_first,
        only_second=only_second,
    )


def mcnemar_test(only_first: int, only_second: int) -> McNemar:
    """Compute McNemar's exact test for two models on the same samples.

    The arguments are the numbers of samples for which only the first, or only the second, model is correct.
    """
    count, fewer = only_first + only_second, min(only_first, only_second)
    logs = (_log_probability(count, number) for number in range(fewer + 1))
    return McNemar(only_first=only_first, only_second=only_second, p=min(1.0, 2 * sum(map(math.exp, logs))))


def _log_probability(count: int, number: int) -> float:
    """Return the logarithm of the probability that `number` of `count` tosses of a fair coin show heads."""
    return math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1) - count * math.log(2.0)


def _interval(value: float, first: Sequence[float | None], second: Sequence[float | None]) -> Interval:
    """Return `value`, a difference, with its 95% interval from paired resamples (percentile bootstrap).

    `first` and `second` are the values in the resamples of both evaluations.
    """
    draws = [
        after - before for before, after in zip(first, second, strict=False) if before is not None and after is not None
    ]
    if len(draws) < _MIN_DRAWS:
        return Interval(value)
    edges = quantiles(draws, n=40, method="inclusive")
    return Interval(value, edges[0], edges[-1])


def _keys(samples: Samples) -> list[tuple[str, int]]:
    """Return a unique key for each sample: its path, and a number that distinguishes samples with equal paths."""
    counts: Counter[str] = Counter()
    keys = []
    for path in samples.paths:
        keys.append((path, counts[path]))
        counts[path] += 1
    return keys


def _only(samples: Samples, others: Samples) -> tuple[str, ...]:
    """Return the paths of samples whose predictions are completely correct in `samples`, but not in `others`."""
    right, of_others = _right(samples), _right(others)
    return tuple(key[0] for key, is_right in right.items() if is_right and of_others.get(key) is False)


def _right(samples: Samples) -> dict[tuple[str, int], bool]:
    return {key: fraction == 1 for key, fraction in zip(_keys(samples), samples.correct or (), strict=True)}
