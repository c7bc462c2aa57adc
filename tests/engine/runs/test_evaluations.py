"""Saved evaluations: their order, and the comparison of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import (
    CURVES_FILE,
    EVALUATION_FILE,
    RESAMPLES_FILE,
    SAMPLES_FILE,
    ClassCurves,
    Curves,
    Evaluation,
    Interval,
    McNemar,
    Resamples,
    Samples,
)
from engine.runs.evaluations import FOLDER, NotComparable, SavedEvaluation, compare, read_evaluation, read_evaluations

ENTRIES = tuple(Measure(name, name.title(), higher_is_better=True) for name in ("top1", "loss", "f1", "other"))


def save(
    run: Path,
    name: str,
    paths: Sequence[str],
    correct: Sequence[float],
    measured: dict[str, tuple[float, Sequence[float | None]]],
    **fields: Any,
) -> SavedEvaluation:
    folder = run / FOLDER / name
    folder.mkdir(parents=True)
    values = {
        "task": "classification",
        "dataset": "/data",
        "split": "val",
        "checkpoint": f"{name}.pt",
        "date": "2026",
    } | fields
    evaluation = Evaluation(
        id=name, run=run.name, sha256="", classes=("a",), samples=len(paths), entries=ENTRIES,
        measures={key: Interval(value) for key, (value, _) in measured.items()}, **values,
    )  # fmt: skip
    samples = Samples(tuple(paths), ("val",) * len(paths), tuple(range(len(paths))), correct=tuple(correct))  # type: ignore[arg-type]
    (folder / EVALUATION_FILE).write_bytes(msgspec.json.encode(evaluation))
    (folder / SAMPLES_FILE).write_bytes(msgspec.msgpack.encode(samples))
    parts = Resamples(
        {key: tuple(None if each is None else float(each) for each in drawn) for key, (_, drawn) in measured.items()}
    )
    (folder / RESAMPLES_FILE).write_bytes(msgspec.msgpack.encode(parts))
    return read_evaluation(folder)


def test_comparison_pairs_samples_and_resamples(tmp_path: Path) -> None:
    paths = ("a", "b", "a", "c", "d", "e")  # two samples have the same path
    drawn = np.linspace(0, 1, 41)
    before = {"top1": (0.5, (None, *drawn)), "loss": (2.0, drawn[:25]), "f1": (0.25, drawn[:24])}
    after = {
        "f1": (0.75, drawn),
        "top1": (0.4, (0.5, *(2 * drawn))),
        "loss": (3.0, 4 * drawn[:25]),
        "other": (1.0, drawn),
    }
    first = save(tmp_path, "1", paths, (1, 1, 0, 1, 0.5, 0), before)
    second = save(tmp_path, "2", paths, (0, 1, 1, 0, 1, 0), after)
    found = compare(first, second)
    assert (found.first, found.second, found.samples) == (first.evaluation, second.evaluation, 6)
    assert [(each.entry.id, each.first, each.second) for each in found.differences] == [
        ("top1", 0.5, 0.4), ("loss", 2.0, 3.0), ("f1", 0.25, 0.75)
    ]  # fmt: skip
    values = [(each.difference.value, each.difference.low, each.difference.high) for each in found.differences]
    assert values[0] == pytest.approx((-0.1, 0.025, 0.975))
    assert values[1] == pytest.approx((1.0, 3 * 0.6 * 0.025, 3 * 0.6 * 0.975))
    assert values[2] == (0.5, None, None)  # too few resamples
    assert (found.only_first, found.only_second) == (("a", "c"), ("a", "d"))
    assert found.mcnemar == McNemar(only_first=2, only_second=2, p=1.0)
    # Of other samples, only those in both evaluations are compared, and resamples don't fit each other.
    third = save(tmp_path, "3", ("a", "d", "e", "x", "b", "y"), (0, 1, 1, 0, 1, 1), {"top1": (0.9, drawn)})
    found = compare(first, third)
    assert (found.samples, found.only_first, found.only_second) == (4, ("a",), ("d", "e"))
    assert found.mcnemar == McNemar(only_first=1, only_second=2, p=pytest.approx(1.0))  # type: ignore[arg-type]
    assert [each.difference for each in found.differences] == [Interval(0.9 - 0.5)]
    other = (
        save(tmp_path, "4", "abc" * 6, (0,) * 18, {}),
        save(tmp_path, "5", "abc" * 6, (*(1,) * 9, *(0,) * 9), {}),
    )
    mcnemar = compare(*other).mcnemar
    assert mcnemar is not None
    assert mcnemar.p == pytest.approx(2 * 0.5**9)
    for task, is_tested in (("multilabel", True), ("segmentation", False)):
        pair = (save(tmp_path, f"{task} {number}", "ab", (1, number), {}, task=task) for number in (0, 1))
        found = compare(*pair)
        counts = McNemar(only_first=0, only_second=1, p=1.0) if is_tested else None
        assert (found.mcnemar, found.only_first, found.only_second) == (
            (counts, (), ("b",)) if is_tested else (None, None, None)
        )
    for field, value in (("task", "multilabel"), ("dataset", "/else"), ("split", "test")):
        with pytest.raises(NotComparable, match=value):
            compare(first, save(tmp_path, value.strip("/"), "a", (0,), {}, **{field: value}))


def test_evaluations_are_sorted_and_have_optional_curves(tmp_path: Path) -> None:
    for name, date in (("20260102", "2026"), ("20260103", "2027"), ("20260101", "2026"), (".part-1", "2028")):
        save(tmp_path, name, "a", (1,), {}, date=date)
    (tmp_path / FOLDER / "20260104").mkdir()
    (tmp_path / FOLDER / "20260104" / EVALUATION_FILE).write_bytes(b"{")
    saved = read_evaluations(tmp_path)
    assert [each.evaluation.id for each in saved] == ["20260103", "20260102", "20260101"]
    assert saved[0].read_curves() == Curves()
    curves = Curves((ClassCurves(0, 3),))
    (saved[0].folder / CURVES_FILE).write_bytes(msgspec.msgpack.encode(curves))
    assert saved[0].read_curves() == curves
