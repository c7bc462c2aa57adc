"""Write the result files of samples, and create their journal entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import simplejpeg
from msgspec import structs
from torch import Tensor

from engine.contract.inference.prediction import Format, PredictRequest, formats_of
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.tiff import ENDINGS
from engine.data.decoding.tiff_rows import Georeference, TiffRows, open_rows, read_georeference
from engine.data.drawing import overlay_mask
from engine.inference.placing import find_likely_classes, project_in_bands
from engine.inference.prediction.journal import Entry, ObjectEntry
from engine.inference.prediction.outlines import encode_runs, measure_boundary, trace_polygons
from engine.inference.prediction.rasters import write_file, write_png, write_tiff
from engine.inference.trained_model import TrainedModel
from engine.system import paths
from engine.tasks.predictions import (
    LINE_COLOR,
    Labels,
    LineScores,
    Objects,
    PixelScores,
    PointClasses,
    Prediction,
    Raw,
    compute_class_fractions,
    create_palette,
    format_fractions,
    format_line_fraction,
)

MAX_DRAWN_PIXELS = 1 << 26
"""Maximum number of pixels in an image for which an overlay is drawn."""
JPEG_QUALITY = 90
"""JPEG quality of overlays."""
_LEVELS = 255


class Sample(NamedTuple):
    """Sample for which a prediction is made.

    Attributes:
        number: Index of the sample among all samples of the request. The frames of a video have the same number.
        name: Name of its result files, without an extension.
        path: Path of the sample, as printed in tables of results.
        file: Path of its source file, or "" for samples that are not files.
        sides: Height and width in pixels, or zeros if it is not an image.
        image: Function that returns an image to draw on, uint8 [h, w, 3].
        frame: Number of the frame in a video, otherwise 0.
        last: False for all frames of a video except the last.
    """

    number: int
    name: str
    path: str
    file: str
    sides: tuple[int, int]
    image: Callable[[], Bytes]
    frame: int = 0
    last: bool = True


class ResultWriter:
    """Writer for the result files of a prediction. It writes each file atomically and is thread-safe."""

    def __init__(
        self, request: PredictRequest, model: TrainedModel, draw: Callable[[Sample, Bytes], str] | None = None
    ) -> None:
        self._request = request
        self._model = model
        self._out = Path(request.out)
        self._predicts_lines = model.task.entry.predicts == "lines"
        self._draw = draw or self._write_overlay
        self._colors = None if self._predicts_lines else create_palette(len(model.classes))

    def write_output(self, sample: Sample, output: Tensor, model_input: Tensor) -> Entry:
        """Write the results of a sample, given the model's output and input for it, both on the CPU.

        Returns the journal entry of the sample. Raises OSError.
        """
        model = self._model
        scores = model.objective.compute_scores(output, model.size)
        if isinstance(scores, PixelScores | LineScores):
            maps = project_in_bands(scores.probabilities, model.view(*sample.sides), *sample.sides)
            return self.write_maps(sample, maps)
        threshold = self._request.threshold
        return self.write_prediction(sample, model.prediction(output, model_input, sample.sides, threshold))

    def write_prediction(self, sample: Sample, prediction: Prediction) -> Entry:
        """Write the results of a sample, given its complete prediction. Returns its journal entry. Raises OSError."""
        classes, scores = prediction.ranked_classes
        files: dict[str, str] = {}  # part of the entry, and filled below
        entry = self._create_entry(sample, prediction.text, classes, scores, files)
        match prediction:
            case Labels():
                probabilities = np.round(prediction.probabilities.astype(np.float64), 6)
                entry = structs.replace(entry, probabilities=tuple(probabilities.tolist()))
            case Objects():
                entry = structs.replace(entry, objects=self._make_object_entries(prediction))
                if "yolo" in self._get_formats():
                    files["yolo"] = self._write_yolo(sample, prediction)
            case PointClasses():
                files["cloud"] = self._write_cloud(sample, prediction)
            case Raw():
                if "json" in self._get_formats():
                    entry = structs.replace(entry, output=prediction.output.tolist())
                if "npy" in self._get_formats():
                    files["npy"] = self._write_npy(sample, prediction)
        if self._request.overlays:
            drawn = None
            if isinstance(prediction, Raw):
                drawn = prediction.drawing
            elif not isinstance(prediction, Labels | PointClasses) and self._can_draw(sample):
                drawn = prediction.draw(sample.image())
            if drawn is not None:
                files["overlays"] = self._draw(sample, drawn)
        return entry

    def write_maps(self, sample: Sample, maps: Iterable[Tensor]) -> Entry:
        """Write the results of a sample, given its probability maps, float32 [k, rows, w], in bands from top to bottom.

        See `placing.project_in_bands` for the bands. Returns the journal entry of the sample. Raises OSError.
        """
        geo_position = read_georeference(sample.file) if sample.file.lower().endswith(ENDINGS) else None
        formats = self._request.formats or (("geotiff",) if geo_position is not None else ("png",))
        counts = np.zeros(NO_CLASS + 1, np.int64)  # pixels of each class
        files: dict[str, str] = {}
        has_overlay = self._request.overlays and self._can_draw(sample)
        with ExitStack() as stack:
            no_data = self._open_no_data_mask(sample, geo_position, stack)
            mask_bands = self._iterate_mask_bands(maps, counts, no_data)  # fills `counts` while it is iterated
            # Only a GeoTIFF can be written row by row. All other results need the whole plane.
            if formats != ("geotiff",) or has_overlay:
                plane = np.concatenate(list(mask_bands))
                mask_bands = iter([plane])
            if "geotiff" in formats:
                files["geotiff"] = f"masks/{sample.name}.tif"
                write_tiff(self._out / files["geotiff"], mask_bands, sample.sides, self._colors, geo_position)
            if "png" in formats:
                files["png"] = f"masks/{sample.name}.png"
                write_png(self._out / files["png"], plane, self._colors)
            if has_overlay:
                files["overlays"] = self._draw(sample, self._overlay_mask(sample.image(), plane))
        if self._predicts_lines:
            # With lines, `counts[1]` are the pixels on lines.
            line_fraction = float(counts[1] / max(1, counts.sum()))
            return self._create_entry(
                sample,
                format_line_fraction(line_fraction),
                classes=(0,) if line_fraction else (),
                scores=(line_fraction,) if line_fraction else (),
                files=files,
            )
        classes, fractions = compute_class_fractions(counts)
        words = format_fractions(self._model.classes, classes, fractions)
        return self._create_entry(sample, words, classes, fractions, files)

    def _iterate_mask_bands(
        self, maps: Iterable[Tensor], counts: np.ndarray, no_data: TiffRows | None
    ) -> Iterator[Bytes]:
        """Yield the bands of the output plane, uint8 [n, w], that belong to the bands of the probability maps `maps`.

        The plane contains the most likely class of each pixel, or if the model predicts lines, the probability in gray
        levels. The pixels are also counted: `counts[c]` becomes the number of pixels of class c. For lines, `counts[1]`
        is the number of pixels on lines, and `counts[0]` is the number of other pixels. Pixels that `no_data` masks get
        the class `NO_CLASS`, the last index of `counts`. For lines, `no_data` must be None, as `_open_no_data_mask`
        returns it.
        """
        first = 0
        for band in maps:
            if self._predicts_lines:
                is_line = band[0] >= self._request.threshold
                counts[:2] += np.array([int((~is_line).sum()), int(is_line.sum())])
                plane: Bytes = (band[0] * _LEVELS).round().byte().numpy()
            else:
                plane, _ = find_likely_classes(band)
                if no_data is not None:
                    plane[no_data.blank(first, first + len(plane))] = NO_CLASS
                counts += np.bincount(plane.ravel(), minlength=len(counts))
            first += len(plane)
            yield plane

    def _open_no_data_mask(
        self, sample: Sample, geo_position: Georeference | None, stack: ExitStack
    ) -> TiffRows | None:
        """Open a reader for the mask of pixels without data, or return None if no pixel is masked.

        No pixel is masked if the image declares no value for missing data, if it can't be read row by row, or if the
        model predicts lines. The reader is closed with `stack`.
        """
        if geo_position is None or geo_position.no_data is None or self._predicts_lines:
            return None
        try:
            return stack.enter_context(open_rows(sample.file, self._model.channels, self._model.bands))
        except Exception:  # it can't be read row by row; decoding reports damage
            return None

    def _overlay_mask(self, image: Bytes, plane: Bytes) -> Bytes:
        """Return `image` [h, w, 3] with the complete output plane [h, w] drawn on it.

        Pixels on lines get the color of lines. For other tasks, each pixel gets the color of its class.
        """
        if not self._predicts_lines:
            return overlay_mask(image, plane)
        return overlay_mask(image, (plane >= self._request.threshold * _LEVELS).astype(np.uint8) * np.uint8(LINE_COLOR))

    def _get_formats(self) -> tuple[Format, ...]:
        """Return the file formats that were requested for the results, or the default format of the task."""
        return self._request.formats or formats_of(self._model.task.entry.id)[:1]

    def _can_draw(self, sample: Sample) -> bool:
        """Return True if the image of a sample has at most `MAX_DRAWN_PIXELS`, so that predictions are drawn on it."""
        return sample.sides[0] * sample.sides[1] <= MAX_DRAWN_PIXELS

    def _make_object_entries(self, prediction: Objects) -> tuple[ObjectEntry, ...]:
        """Convert detected objects to journal entries. The area of an object without a mask is the area of its box."""
        entries = []
        for index in range(len(prediction)):
            left, top, right, bottom = (round(each, 3) for each in prediction.boxes[index].tolist())
            window = prediction.windows[index] if prediction.windows is not None else None
            entries.append(
                ObjectEntry(
                    number=int(prediction.numbers[index]),
                    score=round(float(prediction.scores[index]), 6),
                    box=(left, top, right, bottom),
                    runs=encode_runs(window, *prediction.size) if window is not None else "",
                    area=float(window.pixels.sum()) if window is not None else (right - left) * (bottom - top),
                )
            )
        return tuple(entries)

    def _write_yolo(self, sample: Sample, prediction: Objects) -> str:
        """Write a label file with a line for each object, and return its relative path.

        A line contains the class, and the longest outline if there are masks, or the center and size of the box. All
        coordinates are fractions of the image size. Objects with an empty mask are left out.
        """
        height, width = prediction.size
        text = StringIO()
        for index, (left, top, right, bottom) in enumerate(prediction.boxes.astype(np.float64).tolist()):
            values = [
                (left + right) / 2 / width,
                (top + bottom) / 2 / height,
                (right - left) / width,
                (bottom - top) / height,
            ]
            if prediction.windows is not None:
                outlines = trace_polygons(prediction.windows[index])
                if not outlines:
                    continue
                longest = max(outlines, key=measure_boundary)
                values = [each / (height if number % 2 else width) for number, each in enumerate(longest)]
            print(int(prediction.numbers[index]), *(f"{value:.8f}" for value in values), file=text)
        name = f"labels/{sample.name}.txt"
        return self._write(name, text.getvalue().encode())

    def _write_cloud(self, sample: Sample, prediction: PointClasses) -> str:
        """Write a copy of the point cloud that also contains the predicted classes, and return its relative path.

        The task determines the file format.
        """
        files = self._model.task.files
        assert files is not None
        name = f"clouds/{sample.name}{files.get_output_extension(sample.file)}"
        values = self._model.preprocessing.values
        write_file(self._out / name, lambda path: files.write(sample.file, path, prediction, values))
        return name

    def _write_npy(self, sample: Sample, prediction: Raw) -> str:
        """Write the model's output as a numpy file, and return its relative path."""
        name = f"outputs/{sample.name}.npy"
        write_file(self._out / name, lambda path: np.save(path, prediction.output, allow_pickle=False))
        return name

    def _write_overlay(self, sample: Sample, drawn: Bytes) -> str:
        """Write the image with the drawn prediction as JPEG, and return its relative path."""
        jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(drawn), quality=JPEG_QUALITY)
        return self._write(f"overlays/{sample.name}.jpg", jpeg)

    def _write(self, name: str, content: bytes) -> str:
        """Write a file atomically, and return `name`, its path relative to the output folder."""
        path = self._out / name
        paths.make_folder(path.parent)
        paths.write_atomically(path, content)
        return name

    def _create_entry(
        self,
        sample: Sample,
        words: str,
        classes: tuple[int, ...],
        scores: tuple[float, ...],
        files: dict[str, str],
    ) -> Entry:
        """Create the journal entry of a sample.

        Args:
            sample: The sample.
            words: Text that describes the prediction.
            classes: Indices of the predicted classes.
            scores: Score of each class in `classes`, or the fraction of pixels that it covers.
            files: Relative path of each result file, by the kind of result.
        """
        height, width = sample.sides
        return Entry(
            sample=sample.number,
            frame=sample.frame,
            last=sample.last,
            name=sample.name,
            path=sample.path,
            words=words,
            classes=classes,
            scores=tuple(round(score, 6) for score in scores),
            height=height,
            width=width,
            files=files,
        )
