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
    PredictRequest,
    SkippedFile,
    WrittenFormat,
    formats_of,
)
from engine.inference.prediction.journal import CompletedSamples, Entry
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
_CLASS_SEPARATOR = "; "


class PredictionSummary:
    """Summary of the predictions for all samples, which becomes part of a `Predicted`."""

    def __init__(self, classes: int) -> None:
        self.samples = self.predicted = self.skipped_count = 0
        self.skipped: list[SkippedFile] = []  # the first ones
        self.rows: list[PredictedRow] = []  # of the first samples
        self.counts: Counter[int] = Counter()  # by class
        self._files: dict[str, set[str]] = {}  # by kind of result
        self._classes = classes

    def add(self, entry: Entry) -> None:
        """Add the sample of a journal entry to the counts, and to the listed rows or skipped samples."""
        self.samples += 1
        if entry.skipped:
            self.skipped_count += 1
            if len(self.skipped) < NAMED_SKIPS:
                self.skipped.append(SkippedFile(entry.path, entry.skipped))
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

    def describe_sample_folders(self) -> Iterator[WrittenFormat]:
        """Yield a description of each output folder that contains one file per sample."""
        for name, files in self._files.items():
            yield WrittenFormat(path=FOLDERS[name], format=name, count=len(files))  # type: ignore[arg-type]


def write_tables(
    request: PredictRequest, task: str, classes: tuple[str, ...], completed: CompletedSamples
) -> tuple[PredictionSummary, list[WrittenFormat]]:
    """Write the requested tables atomically, and return a summary and descriptions of all written files.

    Raises OSError.
    """
    out = Path(request.out)
    summary = PredictionSummary(len(classes))
    for entry in completed.iterate_entries():
        summary.add(entry)
    written_files: list[WrittenFormat] = []

    def write_table(name: str, format_: Format, write: Callable[[TextIO], object]) -> None:
        """Create the file `name` in the output folder with `write`, and add it to the list of written files."""

        def write_text(path: Path) -> None:
            with path.open("w", encoding="utf-8", newline="") as stream:
                write(stream)

        write_file(out / name, write_text)
        written_files.append(WrittenFormat(path=name, format=format_, count=1))

    formats = request.formats or formats_of(task)[:1]
    if "csv" in formats:
        write_table(CSV, "csv", lambda stream: _write_csv(stream, classes, completed))
    if "coco" in formats:
        write_table(COCO, "coco", lambda stream: _write_coco(stream, classes, completed))
    if "yolo" in formats:
        write_table(YAML, "yolo", lambda stream: stream.write(_format_yolo_names(classes)))
    if "json" in formats:
        write_table(JSON_LINES, "json", lambda stream: _write_json_lines(stream, completed))
    return summary, [*written_files, *summary.describe_sample_folders()]


def _iterate_predicted(completed: CompletedSamples) -> Iterator[Entry]:
    """Yield the journal entries of all samples that have a result."""
    return (entry for entry in completed.iterate_entries() if not entry.skipped)


def _write_csv(stream: TextIO, classes: tuple[str, ...], completed: CompletedSamples) -> None:
    """Write a CSV file with a row for each image.

    A row has the path, the predicted classes, the probability of the first, and the probabilities of all classes.
    """
    table = CsvWriter(stream)
    table.write_row(["path", "predicted", "probability", *classes])
    for entry in _iterate_predicted(completed):
        class_names = _CLASS_SEPARATOR.join(classes[number] for number in entry.classes)
        probability_text = f"{entry.scores[0]:.6f}" if entry.scores else ""
        table.write_row([entry.path, class_names, probability_text, *(f"{value:.6f}" for value in entry.probabilities)])


def _write_coco(stream: TextIO, classes: tuple[str, ...], completed: CompletedSamples) -> None:
    """Write COCO's object detection format (cocodataset.org, "Data format") with scores. Categories start from 1."""
    stream.write('{"images": [')
    for number, entry in enumerate(_iterate_predicted(completed), 1):
        image = {"id": number, "file_name": entry.path, "height": entry.height, "width": entry.width}
        stream.write(("," if number > 1 else "") + "\n" + json.dumps(image, ensure_ascii=False))
    stream.write('\n],\n"annotations": [')
    annotation_count = 0
    for number, entry in enumerate(_iterate_predicted(completed), 1):
        for predicted_object in entry.objects:
            annotation_count += 1
            left, top, right, bottom = predicted_object.box
            annotation: dict[str, Any] = {
                "id": annotation_count,
                "image_id": number,
                "category_id": predicted_object.number + 1,
                "bbox": [left, top, round(right - left, 3), round(bottom - top, 3)],
                "area": round(predicted_object.area, 3),
                "score": predicted_object.score,
                "iscrowd": 0,
            }
            if predicted_object.runs:
                annotation["segmentation"] = {"size": [entry.height, entry.width], "counts": predicted_object.runs}
            stream.write(("," if annotation_count > 1 else "") + "\n" + json.dumps(annotation))
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    stream.write('\n],\n"categories": ' + json.dumps(categories, ensure_ascii=False) + "}\n")


def _format_yolo_names(classes: tuple[str, ...]) -> str:
    """Return a YAML text that maps the class numbers in label files to class names."""
    import yaml

    return str(yaml.safe_dump({"names": dict(enumerate(classes))}, allow_unicode=True, sort_keys=False))


def _write_json_lines(stream: TextIO, completed: CompletedSamples) -> None:
    """Write a line with the path and the model's output for each sample."""
    for entry in _iterate_predicted(completed):
        stream.write(msgspec.json.encode({"path": entry.path, "output": entry.output}).decode() + "\n")
