"""Result tables of a prediction, which are joined from the journals of all workers."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from engine.contract.inference.prediction import PredictedRow, PredictRequest, SkippedFile, WrittenFormat
from engine.inference.prediction import joining
from engine.inference.prediction.joining import PredictionSummary, write_tables
from engine.inference.prediction.journal import CompletedSamples, Entry, Journal, ObjectEntry, Writers
from tests.support.limits import limit_file_size

OBJECTS = (ObjectEntry(2, 0.75, (2.0, 3.5, 12.0, 8.0), 31.25), ObjectEntry(0, 0.25, (0.0, 1.0, 4.0, 7.0), 9.5, "PPYo1"))
LAST = Entry(
    sample=3,
    path="d,1.png",
    words="two",
    classes=(2, 0),
    scores=(0.75, 0.25),
    height=20,
    width=30,
    probabilities=(0.25, 0.0, 0.75),
    objects=OBJECTS,
    output=[1.5],
    files={"png": "masks/d.png", "geotiff": "masks/d.tif", "yolo": "labels/d.txt", "overlays": "overlays/d.jpg"},
)
FRAMES = [
    Entry(sample=1, frame=frame, last=frame == 1, path=f"b#{frame}", classes=(0, 0)[: 2 - 2 * frame], height=8, width=9, files={"yolo": "labels/b.txt", "geotiff": "masks/b.tif"})
    for frame in range(2)
]  # fmt: skip
SKIPPED = [Entry(sample=0, path="a.png", skipped="it is empty"), Entry(sample=4, path="e.png", skipped="it is gone")]


def write_journals(folder: Path, *journals: Sequence[Entry]) -> CompletedSamples:
    for rank, entries in enumerate(journals):
        with Journal(folder, 7 - rank, rank) as journal:
            journal.add(*entries)
    return CompletedSamples(folder, 6)


def test_tables_hold_completed_samples_in_order(tmp_path: Path) -> None:
    # The second journal has an unfinished video, and other samples between the frames of the finished one.
    found = write_journals(
        tmp_path, [LAST, SKIPPED[1]], [FRAMES[0], SKIPPED[0], FRAMES[1], Entry(sample=5, last=False)]
    )
    assert (found.starts, np.flatnonzero(found.samples).tolist()) == (7, [0, 1, 3, 4])
    request = PredictRequest(run="", paths=(), out=str(tmp_path), formats=("csv", "coco", "yolo", "json"))
    summary, files = write_tables(request, "detection", ("x", "y", "z"), found)
    assert (summary.samples, summary.predicted, summary.skipped_count, summary.class_counts) == (5, 3, 2, (3, 0, 1))
    assert summary.skipped == [SkippedFile("a.png", "it is empty"), SkippedFile("e.png", "it is gone")]
    assert summary.rows[2] == PredictedRow(
        path="d,1.png", text="two", classes=(2, 0), scores=(0.75, 0.25), overlay="overlays/d.jpg", mask="masks/d.png"
    )
    assert [(row.path, row.mask) for row in summary.rows[:2]] == [("b#0", "masks/b.tif"), ("b#1", "masks/b.tif")]
    expected = [("predictions.csv", "csv", 1), ("predictions.coco.json", "coco", 1), ("data.yaml", "yolo", 1)]
    expected += [("predictions.jsonl", "json", 1), ("labels", "yolo", 2), ("masks", "geotiff", 2), ("masks", "png", 1), ("overlays", "overlays", 1)]  # fmt: skip
    assert files == [WrittenFormat(path=path, format=name, count=count) for path, name, count in expected]  # type: ignore[arg-type]
    with (tmp_path / "predictions.csv").open(newline="") as stream:
        head, *rows, last = csv.reader(stream)
    assert head == ["path", "predicted", "probability", "x", "y", "z"]
    assert rows == [["b#0", "x; x", ""], ["b#1", "", ""]]
    assert last == ["d,1.png", "z; x", "0.750000", "0.250000", "0.000000", "0.750000"]
    coco = json.loads((tmp_path / "predictions.coco.json").read_text())
    images = [(each["id"], each["file_name"], each["height"], each["width"]) for each in coco["images"]]
    assert images == [(1, "b#0", 8, 9), (2, "b#1", 8, 9), (3, "d,1.png", 20, 30)]
    box = {"id": 1, "image_id": 3, "category_id": 3, "bbox": [2.0, 3.5, 10.0, 4.5], "area": 31.25, "score": 0.75, "iscrowd": 0}  # fmt: skip
    mask = box | {"id": 2, "category_id": 1, "bbox": [0.0, 1.0, 4.0, 6.0], "area": 9.5, "score": 0.25}
    assert coco["annotations"] == [box, mask | {"segmentation": {"size": [20, 30], "counts": "PPYo1"}}]
    assert coco["categories"] == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}, {"id": 3, "name": "z"}]
    assert yaml.safe_load((tmp_path / "data.yaml").read_text()) == {"names": {0: "x", 1: "y", 2: "z"}}
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert lines[1:] == [{"path": "b#1", "output": None}, {"path": "d,1.png", "output": [1.5]}]


def test_incomplete_entries_are_errors(tmp_path: Path) -> None:
    with Journal(tmp_path, 1, 0) as journal, limit_file_size(40), pytest.raises(OSError, match="too large"):
        journal.add(LAST)


def test_error_of_the_last_batch_is_raised(tmp_path: Path) -> None:
    written: list[int] = []
    with Journal(tmp_path, 1, 0) as journal:
        writers = Writers(journal, written.append)
        for divisor in (1, 0):
            writers.submit(lambda number, divisor: Entry(sample=number // divisor), [1, 2], [divisor] * 2)
        with pytest.raises(ZeroDivisionError), writers:
            pass
    assert written == [2]


def test_default_table_and_limits_of_a_summary(tmp_path: Path) -> None:
    request = PredictRequest(run="", paths=(), out=str(tmp_path))
    _, files = write_tables(request, "detection", ("x", "y", "z"), write_journals(tmp_path, [LAST]))
    assert [each.path for each in files] == ["predictions.coco.json", "masks", "masks", "labels", "overlays"]
    summary = PredictionSummary(3)
    for _ in range(joining.NAMED_SKIPS + 1):
        summary.add(SKIPPED[0])
        summary.add(LAST)
    assert (len(summary.skipped), len(summary.rows)) == (joining.NAMED_SKIPS, joining.SHOWN_ROWS)
    assert (summary.skipped_count, summary.predicted) == (joining.NAMED_SKIPS + 1,) * 2
