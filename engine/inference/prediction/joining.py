"""Merge the journals of all workers into tables and a summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec

from engine.contract.inference.prediction import (
    NAMED_SKIPS,
    SHOWN_ROWS,
    Format,
    PredictedRow,
    PredictOrder,
    Skipped,
    Written,
    formats_of,
)
from engine.inference.prediction.journal import Done, Entry
from engine.inference.prediction.rasters import write_file
from engine.system.plain_text import CsvWriter

CSV, COCO, YAML, JSON_LINES = "predictions.csv", "predictions.coco.json", "data.yaml", "predictions.jsonl"
FOLDERS: dict[str, str] = {
    "yolo": "labels",
    "png": "masks",
    "geotiff": "masks",
    "cloud": "clouds",
    "npy": "outputs",
    "overlays": "overlays",
}
"""Subfolder of the output folder for the files of single samples, by format."""
_SEVERAL = "; "


class Summary:
    """Summary of the results of all samples, which becomes part of a `Predicted`."""

    def __init__(self, classes: int) -> None:
        self.samples = self.predicted = self.skipped_count = 0
        self.skipped: list[Skipped] = []
        self.rows: list[PredictedRow] = []
        self.counts: Counter[int] = Counter()
        self._files: dict[str, set[str]] = {}
        self._classes = classes

    def add(self, entry: Entry) -> None:
        """Include a journal entry in the summary."""
        self.samples += 1
        if entry.skipped:
            self.skipped_count += 1
            if len(self.skipped) < NAMED_SKIPS:
                self.skipped.append(Skipped(entry.path, entry.skipped))
            return
        self.predicted += 1
        self.counts.update(entry.classes)
        for name, file in entry.files.items():
            self._files.setdefault(name, set()).add(file)
        if len(self.rows) < SHOWN_ROWS:
            mask = entry.files.get("png", entry.files.get("geotiff", ""))
            self.rows.append(
                PredictedRow(
                    path=entry.path,
                    text=entry.words,
                    classes=entry.classes,
                    scores=entry.scores,
                    overlay=entry.files.get("overlays", ""),
                    mask=mask,
                )
            )

    @property
    def class_counts(self) -> tuple[int, ...]:
        return tuple(self.counts[number] for number in range(self._classes))

    def written(self) -> Iterator[Written]:
        """Yield a description of each folder that contains files of single samples."""
        for name, files in self._files.items():
            yield Written(path=FOLDERS[name], format=name, count=len(files))  # type: ignore[arg-type]


def join(order: PredictOrder, task: str, classes: tuple[str, ...], done: Done) -> tuple[Summary, list[Written]]:
    """Write the requested tables atomically, and return a summary and descriptions of all written files.

    Raises OSError.
    """
    out = Path(order.out)
    summary = Summary(len(classes))
    for entry in done.entries():
        summary.add(entry)
    written: list[Written] = []

    def table(name: str, kind: Format, write: Callable[[TextIO], object]) -> None:
        def write_text(partial: Path) -> None:
            with partial.open("w", encoding="utf-8", newline="") as stream:
                write(stream)

        write_file(out / name, write_text)
        written.append(Written(path=name, format=kind, count=1))

    formats = order.formats or formats_of(task)[:1]
    if "csv" in formats:
        table(CSV, "csv", lambda stream: _write_csv(stream, classes, done))
    if "coco" in formats:
        table(COCO, "coco", lambda stream: _write_coco(stream, classes, done))
    if "yolo" in formats:
        table(YAML, "yolo", lambda stream: stream.write(_yolo_names(classes)))
    if "json" in formats:
        table(JSON_LINES, "json", lambda stream: _write_lines(stream, done))
    return summary, [*written, *summary.written()]


def _predicted(done: Done) -> Iterator[Entry]:
    return (entry for entry in done.entries() if not entry.skipped)


def _write_csv(stream: TextIO, classes: tuple[str, ...], done: Done) -> None:
    """Write a CSV file with a row for each image.

    A row has the path, the predicted classes, the probability of the first, and the probabilities of all classes.
    """
    table = CsvWriter(stream)
    table.row(["path", "predicted", "probability", *classes])
    for entry in _predicted(done):
        names = _SEVERAL.join(classes[number] for number in entry.classes)
        best = f"{entry.scores[0]:.6f}" if entry.scores else ""
        table.row([entry.path, names, best, *(f"{value:.6f}" for value in entry.probabilities)])


def _write_coco(stream: TextIO, classes: tuple[str, ...], done: Done) -> None:
    """Write COCO's object detection format (cocodataset.org, "Data format") with scores. Categories start from 1."""
    stream.write('{"images": [')
    for number, entry in enumerate(_predicted(done), 1):
        image = {"id": number, "file_name": entry.path, "height": entry.height, "width": entry.width}
        stream.write(("," if number > 1 else "") + "\n" + json.dumps(image, ensure_ascii=False))
    stream.write('\n],\n"annotations": [')
    count = 0
    for number, entry in enumerate(_predicted(done), 1):
        for each in entry.objects:
            count += 1
            left, top, right, bottom = each.box
            annotation: dict[str, Any] = {
                "id": count,
                "image_id": number,
                "category_id": each.number + 1,
                "bbox": [left, top, round(right - left, 3), round(bottom - top, 3)],
                "area": round(each.area, 3),
                "score": each.score,
                "iscrowd": 0,
            }
            if each.runs:
                annotation["segmentation"] = {"size": [entry.height, entry.width], "counts": each.runs}
            stream.write(("," if count > 1 else "") + "\n" + json.dumps(annotation))
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    stream.write('\n],\n"categories": ' + json.dumps(categories, ensure_ascii=False) + "}\n")


def _yolo_names(classes: tuple[str, ...]) -> str:
    """Return a YAML text that maps the class numbers in label files to class names."""
    import yaml

    return str(yaml.safe_dump({"names": dict(enumerate(classes))}, allow_unicode=True, sort_keys=False))


def _write_lines(stream: TextIO, done: Done) -> None:
    for entry in _predicted(done):
        stream.write(msgspec.json.encode({"path": entry.path, "output": entry.output}).decode() + "\n")
