"""Worker for predictions, which runs the model and writes the requested results."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

import numpy as np

from engine.contract.inference.prediction import PredictOrder
from engine.contract.problems import Problem
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.samples import SampleSet
from engine.data.datasets.unlabeled_images import UnlabeledImages
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.pixels import decode_pixels, read_to_show
from engine.data.decoding.reading import describe_failure, open_image, read_image, silence_pillow
from engine.data.decoding.tiff_rows import TiffRows, open_rows
from engine.data.splits import Labels, printable
from engine.inference.prediction.journal import Entry, Journal, Writers
from engine.inference.prediction.plan import ModelFacts, PlanFolder
from engine.inference.prediction.results import Results, Sample
from engine.inference.prediction.samples import RecordedImages, RecordedSamples, open_folder_samples
from engine.inference.prediction.sources import Sources
from engine.inference.sweep import ALL_SAMPLES, sweep
from engine.inference.tiles import InMemory, Picture, Tiling, tiled_maps, tiled_objects
from engine.inference.trained_model import TrainedModel
from engine.inference.video import NoVideo, VideoWriter, frames, is_video, rate_of
from engine.inference.worker import Shard, serve
from engine.models.base import TaskError
from engine.system import paths
from engine.tasks.predictions import PointClasses, PointScores

FULL = (errno.ENOSPC, errno.EDQUOT)


def work(spec: WorkerSpec, channel: socket.socket) -> int:
    return serve(spec, channel, PredictOrder, _predict)


def _predict(order: PredictOrder, model: TrainedModel, shard: Shard) -> None:
    """Make predictions for this rank's part of the planned samples, and record them in a journal. Raises TaskError."""
    folder = PlanFolder(shard.folder)
    plan = folder.plan()
    if shard.rank == 0:
        folder.put_model(ModelFacts(classes=model.classes, sha256=model.sha256, legend=tuple(model.objective.legend)))
    try:
        with Journal(folder.folder, plan.start, shard.rank) as journal:
            predictor = Predictor(order, model, shard, journal, sources=folder.sources(), todo=folder.todo())
            {"images": predictor.images, "clouds": predictor.clouds, "folder": predictor.folder}[plan.kind]()
    except (OSError, NoVideo) as error:
        raise TaskError.of(cannot_write(Path(order.out), error)) from error


def cannot_write(out: Path, error: Exception) -> Problem:
    """Return a problem which says that results can't be written to the folder `out` because of `error`."""
    if isinstance(error, OSError) and error.errno in FULL:
        remedy = "Free some space, then start it again with the same arguments: it continues."
        return Problem("out", f"The disk of {printable(str(out))} is full.", remedy)
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return Problem(
        "out", f"The results can't be written into {printable(str(out))}: {reason}.", "Choose another folder."
    )


class Predictor:
    """Predictor of one worker, which runs the model on samples and writes the requested results."""

    def __init__(
        self,
        order: PredictOrder,
        model: TrainedModel,
        shard: Shard,
        journal: Journal,
        *,
        sources: Sources,
        todo: Labels,
    ) -> None:
        self._order, self._model, self._shard, self._journal = order, model, shard, journal
        self._sources, self._todo = sources, todo
        self._batch_size = order.batch_size or model.job.training.batch_size
        self._results = Results(order, model)
        self._tile = model.size if order.tile == "auto" else order.tile
        silence_pillow()

    def images(self) -> None:
        """Run the model on the images and videos of the order.

        Batches of resized images are distributed over the workers. Images that are processed in tiles, and videos, are
        distributed as entire files.
        """
        files = self._sources.files
        is_video_file = np.array([is_video(files[number]) for number in self._todo.tolist()], bool)
        stills, videos = self._todo[~is_video_file], self._todo[is_video_file]
        if self._tile is None:
            self._predict_resized(stills, shared=True)
        else:
            local_stills = stills[self._shard.partition.rank :: self._shard.partition.world]
            large = np.array([self._is_large(files[number]) for number in local_stills.tolist()], bool)
            self._predict_resized(local_stills[~large], shared=False)
            self._one_by_one(local_stills[large], self._in_tiles)
        self._one_by_one(videos[self._shard.partition.rank :: self._shard.partition.world], self._predict_video)

    def clouds(self) -> None:
        self._one_by_one(self._todo[self._shard.partition.rank :: self._shard.partition.world], self._predict_cloud)

    def folder(self) -> None:
        """Run the model on the samples that a user-defined task reads from a folder."""
        samples = open_folder_samples(self._model.task, self._model.job, self._sources.files[0])
        chosen = RecordedSamples(samples, self._todo)
        with Writers(self._journal, self._shard.advance) as writers:
            for swept in sweep(self._model, chosen, batch_size=self._batch_size, partition=self._shard.partition):
                batch = [self._folder_sample(samples, int(self._todo[index])) for index in swept.samples]
                writers.submit(self._results.of_output, batch, swept.outputs.cpu(), swept.inputs.cpu())
                self._skip(chosen.failed)
            self._skip(chosen.failed)

    def _folder_sample(self, samples: SampleSet, number: int) -> Sample:
        return Sample(number, f"{number:06}", printable(samples.path(number)), "", (0, 0), _no_image)

    def _predict_resized(self, numbers: Labels, *, shared: bool) -> None:
        """Run the model on images resized to squares as in training.

        `numbers` are the images' indices in the sources. If `shared` is True, every worker gets the same indices and
        processes its part of them.
        """
        if not len(numbers):
            return
        files = [self._sources.files[number] for number in numbers.tolist()]
        images = RecordedImages(files, self._model, numbers)
        partition = self._shard.partition if shared else ALL_SAMPLES
        with Writers(self._journal, self._shard.advance) as writers:
            for swept in sweep(self._model, images, batch_size=self._batch_size, partition=partition):
                batch = [self._sample(int(numbers[index]), self._sides(images, index)) for index in swept.samples]
                writers.submit(self._results.of_output, batch, swept.outputs.cpu(), swept.inputs)
                self._skip(images.failed)
            self._skip(images.failed)

    def _sides(self, images: UnlabeledImages, index: int) -> tuple[int, int]:
        """Return the height and width of an image.

        If the image was cropped while it was decoded, these are the height and width of the model's input.
        """
        height, width = images.sides[index].tolist()
        return (height, width) if height else (self._model.size, self._model.size)

    def _sample(self, number: int, sides: tuple[int, int]) -> Sample:
        file = self._sources.files[number]
        return Sample(number, self._sources.names[number], printable(file), file, sides, lambda: _to_draw_on(file))

    def _one_by_one(self, numbers: Labels, predict: Callable[[int], None]) -> None:
        for number in numbers.tolist():
            try:
                predict(number)
            except UnreadableImage as error:
                self._skip({number: error.reason})
            else:
                self._shard.advance(1)

    def _is_large(self, file: str) -> bool:
        assert self._tile is not None
        try:
            with open_rows(file, self._model.channels, self._model.bands) as rows:
                return max(rows.sides) > self._tile
        except Exception:  # not a readable TIFF: check only the header; decoding reports damage
            with suppress(Exception), open_image(file) as image:
                return max(image.size) > self._tile
        return False

    def _in_tiles(self, number: int) -> None:
        file = self._sources.files[number]
        with ExitStack() as stack:
            picture: Picture
            try:
                rows = stack.enter_context(open_rows(file, self._model.channels, self._model.bands))
                picture = _Rows(rows, file)
            except Exception:  # not a readable TIFF; decoding reports damage
                picture = self._decoded(file)
            self._tiled(number, picture)

    def _tiled(self, number: int, picture: Picture) -> None:
        assert self._tile is not None
        tiling = Tiling(self._tile, self._order.overlap, self._batch_size)
        sample = self._sample(number, picture.sides)
        if self._model.task.entry.predicts == "objects":
            found = tiled_objects(self._model, picture, tiling, self._order.threshold)
            self._journal.add(self._results.of_prediction(sample, found))
        else:
            self._journal.add(self._results.of_maps(sample, tiled_maps(self._model, picture, tiling)))

    def _decoded(self, file: str) -> InMemory:
        try:
            return InMemory(decode_pixels(read_image(file), self._model.channels, self._model.bands))
        except Exception as error:  # decoders raise many errors for broken files
            raise UnreadableImage(printable(file), describe_failure(error)) from error

    def _predict_cloud(self, number: int) -> None:
        """Write the prediction for the point cloud with the index `number`. Raises UnreadableImage."""
        file = self._sources.files[number]
        try:
            found = predict_cloud(self._model, file, self._batch_size)
        except UnreadableImage:
            raise
        except Exception as error:  # readers raise many errors for broken files
            raise UnreadableImage(printable(file), describe_failure(error)) from error
        sample = self._sample(number, (0, 0))  # a cloud has no height and width
        self._journal.add(self._results.of_prediction(sample, found))

    def _predict_video(self, number: int) -> None:
        """Run the model on the frames of a video or a camera in batches.

        One batch is read ahead, so that the last batch is recognized.
        """
        file, name = self._sources.files[number], self._sources.names[number]
        try:
            rate = rate_of(file)
            video_frames = islice(frames(file, 3), self._order.max_frames)
            overlay = Path(self._order.out, "overlays", f"{name}.mp4")
            if self._order.overlays:
                paths.make_folder(overlay.parent)
            with VideoWriter(overlay, rate) as video:
                results = Results(self._order, self._model, self._draw_into(video, overlay))
                frame = 0
                batch = list(islice(video_frames, self._batch_size))
                while batch:
                    following = list(islice(video_frames, self._batch_size))
                    self._predict_frames(results, number, batch, frame, ended=not following)
                    frame += len(batch)
                    batch = following
        except NoVideo as error:
            raise UnreadableImage(printable(file), str(error)) from error

    def _draw_into(self, video: VideoWriter, path: Path) -> Callable[[Sample, Bytes], str]:
        def draw(_: Sample, drawn: Bytes) -> str:
            video.add(drawn)
            return f"overlays/{path.name}"

        return draw

    def _predict_frames(
        self, results: Results, number: int, images: Sequence[Bytes], first: int, *, ended: bool
    ) -> None:
        """Run the model on consecutive frames of a video.

        Args:
            results: Writer for the results.
            number: Index of the video among the sources.
            images: Frames, uint8 [h, w, 3] each.
            first: Index of the first of these frames in the video.
            ended: True if the video ends after these frames.
        """
        file, name = self._sources.files[number], self._sources.names[number]
        channels = self._model.channels
        converted = [image if channels == 3 else image.mean(2).round().astype(np.uint8) for image in images]
        try:
            inputs = self._model.inputs(converted)
        except ValueError as error:
            raise NoVideo(str(error)) from error
        entries = []
        for index, output in enumerate(self._model.outputs(inputs).cpu()):
            image = images[index]
            frame = first + index
            sample = Sample(
                number,
                name=f"{name}/{frame:06}",
                path=f"{printable(file)}#{frame}",
                file="",
                sides=image.shape[:2],
                image=lambda image=image: image,  # type: ignore[misc]
                frame=frame,
                last=ended and index == len(images) - 1,
            )
            entries.append(results.of_output(sample, output, inputs[index]))
        self._journal.add(*entries)

    def _skip(self, failed: dict[int, str]) -> None:
        """Record that samples could not be read, and clear `failed`, which maps their numbers to the reasons."""
        while failed:
            number, reason = failed.popitem()
            path = printable(self._sources.files[number]) if self._sources.kind != "folder" else f"sample {number}"
            self._journal.add(Entry(sample=number, path=path, skipped=reason))
            self._shard.skip(path, reason)
            self._shard.advance(1)


def predict_cloud(model: TrainedModel, file: str, batch_size: int) -> PointClasses:
    """Predict the class of each point in a file. Each point is predicted exactly once. Raises UnreadableImage."""
    files = model.task.files
    assert files is not None
    samples, count = files.open(file, model.preprocessing, model.job)
    numbers, probability = np.full(count, NO_CLASS, np.uint8), np.zeros(count, np.float32)
    failed: list[str] = []
    for swept in sweep(model, samples, batch_size=batch_size, on_unreadable=lambda path, reason: failed.append(reason)):
        for sample, output in zip(swept.samples.tolist(), swept.outputs.cpu(), strict=True):
            scores = model.objective.scores(output, size=0)  # not an image
            assert isinstance(scores, PointScores)
            best = scores.probabilities.max(0)
            rows, is_predicted = samples.points_of(sample)
            numbers[rows[is_predicted]] = best.indices.numpy()[is_predicted]
            probability[rows[is_predicted]] = best.values.numpy()[is_predicted]
    if failed:
        raise UnreadableImage(file, failed[0])
    return PointClasses(classes=model.classes, numbers=numbers, probability=probability)


class _Rows:
    """TIFF image that is read row by row. `rows` raises UnreadableImage if the file is damaged."""

    def __init__(self, rows: TiffRows, file: str) -> None:
        self._rows, self._file = rows, file
        self.sides = rows.sides

    def rows(self, first: int, last: int) -> Bytes:
        try:
            return self._rows.rows(first, last)
        except Exception as error:  # decoders raise many errors for broken files
            raise UnreadableImage(printable(self._file), describe_failure(error)) from error


def _to_draw_on(file: str) -> Bytes:
    """Read an image as RGB, uint8 [h, w, 3], so that a prediction can be drawn on it."""
    return np.asarray(read_to_show(file).convert("RGB"))


def _no_image() -> Bytes:
    raise AssertionError("samples that are not files are not drawn on")
