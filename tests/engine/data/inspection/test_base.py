"""Parts that inspections share: retries after running out of memory, unusable files, and the choice of examples."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.contract.dataset import Example
from engine.data.inspection.base import (
    EXAMPLES,
    FileChecker,
    MemoryGate,
    count_classes,
    draw_examples,
    spread_by_class,
    spread_examples,
    start_inspection,
)
from engine.data.splits import LabelSplit, RecognizedDataset
from tests.support.images import write_image


def test_memory_gate_repeats_each_call_that_runs_out_of_memory() -> None:
    gate = MemoryGate()
    calls: list[int] = []
    results: list[int] = []

    def check(number: int) -> int:
        calls.append(number)
        if calls.count(number) == 1:
            raise MemoryError
        return 10 * number

    def run() -> None:
        results.extend(gate.run(check, number) for number in range(3))

    thread = threading.Thread(target=run, daemon=True)  # a gate that stays closed would wait forever
    thread.start()
    thread.join(20)
    assert (results, calls) == ([0, 10, 20], [0, 0, 1, 1, 2, 2])


def test_memory_gate_repeats_a_call_after_those_of_other_threads() -> None:
    gate = MemoryGate()
    is_working, is_repeated = threading.Event(), threading.Event()
    failed: list[str] = []
    ended: list[str] = []

    def work(name: str) -> None:
        is_working.set()
        is_repeated.wait(0.1)  # the other call would be repeated in this time if it didn't wait
        ended.append(name)

    def run_out_of_memory(name: str) -> None:
        if not failed:
            failed.append(name)
            raise MemoryError
        is_repeated.set()
        ended.append(name)

    thread = threading.Thread(target=gate.run, args=(work, "working"), daemon=True)
    thread.start()
    assert is_working.wait(20)
    gate.run(run_out_of_memory, "repeated")
    thread.join(20)
    assert ended == ["working", "repeated"]


def test_file_checker_counts_all_files_and_reports_unusable_ones() -> None:
    done: list[tuple[int, int]] = []
    left_out: list[tuple[str, str]] = []
    checker = FileChecker(5, lambda *numbers: done.append(numbers), lambda *file: left_out.append(file))
    assert checker.report_unusable(["a", "b", "c"], [None, "it is empty", None]) == [0, 2]

    def check(index: int) -> str:
        if not index:
            raise ValueError("torn")
        return f"result {index}"

    assert checker.check_each(["d", "e"], check, 2) == {1: "result 1"}
    assert done == [(number, 5) for number in range(1, 6)]
    assert [path for path, _ in left_out] == ["b", "d"]
    assert left_out[0][1] == "it is empty"
    assert "torn" in left_out[1][1]


def test_channels_are_those_of_both_splits(tmp_path: Path) -> None:
    files = [write_image(tmp_path / "gray.png", 80, mode="L"), write_image(tmp_path / "color.png")]
    train, val = (LabelSplit([str(file)], np.ones((1, 1), bool)) for file in files)
    found = RecognizedDataset("", ("ant",), train=train, val=val)
    for dataset, channels in ((found, 3), (replace(found, val=train), 1)):
        _, result, _ = start_inspection(dataset, LabelSplit, lambda *_: None, lambda *_: None)
        assert result.channels == channels


def test_draw_examples_leaves_out_unreadable_samples() -> None:
    def draw(index: int) -> Example:
        if index == 5:
            raise ValueError("torn")
        return Example("cat", "train", b"", index)

    assert [example.sample for example in draw_examples([2, 5, 9], draw)] == [2, 9]


def test_shares_of_classes_are_of_pixels_and_counts_of_files() -> None:
    counts = [np.array([6, 2, 0, 9]), None, np.array([0, 8, 0, 9])]
    files, shares = count_classes(("a", "b", "c"), counts)
    assert files == {"a": 1, "b": 2, "c": 0}
    assert shares == pytest.approx({"a": 6 / 16, "b": 10 / 16, "c": 0})
    assert count_classes(("a",), [None]) == ({"a": 0}, {"a": 0.0})


@pytest.mark.parametrize(
    ("count", "expected"), [(100, range(0, 100, 9)), (30, range(0, 30, 3)), (5, range(5)), (0, [])]
)
def test_examples_are_spread_evenly(count: int, expected: list[int]) -> None:
    assert spread_examples([7 + 2 * number for number in range(count)]) == [7 + 2 * number for number in expected]


def test_examples_are_of_as_many_classes_as_possible() -> None:
    labels = np.array([0] * 20 + [1] * 2 + [2] + [3])
    usable = np.array([*range(4, 23)])
    assert spread_by_class(labels, usable) == [*range(4, 4 + EXAMPLES - 3), 20, 21, 22]
    assert spread_by_class(np.arange(40), np.arange(40)) == [*range(EXAMPLES)]
