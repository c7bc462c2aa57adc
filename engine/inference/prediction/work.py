"""Worker for predictions, which runs the model and writes the requested results."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

import numpy as np

from engine.contract.inference.prediction import PredictRequest
from engine.contract.problems import Problem
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
from engine.inference.prediction.results import ResultWriter, Sample
from engine.inference.prediction.samples import RecordedImages, RecordedSamples, open_folder_samples
from engine.inference.prediction.sources import Sources
from engine.inference.sweep import ALL_SAMPLES, predict_batches
from engine.inference.tiles import ImageInMemory, RowReader, Tiling, detect_in_tiles, iterate_tiled_maps
from engine.inference.trained_model import TrainedModel
from engine.inference.video import NoVideo, VideoWriter, frames, is_video, read_frame_rate
from engine.inference.worker import Shard
from engine.models.base import TaskError
from engine.system import paths
from engine.tasks.predictions import PointClasses, PointScores

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


def predict_shard(request: PredictRequest, model: TrainedModel, shard: Shard) -> None:
    """Make predictions for this rank's part of the planned samples, and record them in a journal.

    The plan is read from the folder of `shard`. Rank 0 also writes the facts about the model there. Raises TaskError if
    results can't be written.
    """
    folder = PlanFolder(shard.folder)
    plan = folder.read_plan()
    if shard.rank == 0:
        folder.write_model(ModelFacts(classes=model.classes, sha256=model.sha256, legend=tuple(model.objective.legend)))
    try:
        with Journal(folder.folder, plan.start, shard.rank) as journal:
            sources, remaining = folder.read_sources(), folder.read_remaining()
            predictor = Predictor(request, model, shard, journal, sources=sources, remaining=remaining)
            match plan.kind:
                case "images":
                    predictor.predict_images()
                case "clouds":
                    predictor.predict_clouds()
                case "folder":
                    predictor.predict_folder()
    except OSError as error:
        raise TaskError.of(create_write_problem(Path(request.out), error)) from error


def create_write_problem(out: Path, error: OSError) -> Problem:
    """Return a problem which says that results can't be written to the folder `out` because of `error`."""
    if error.errno in DISK_FULL_ERRORS:
        remedy = "Free some space, then start it again with the same arguments: it continues."
        return Problem("", f"The disk of {printable(str(out))} is full.", remedy)
    reason = error.strerror or str(error)
    return Problem(
        "out", f"The results can't be written into {printable(str(out))}: {reason}.", "Choose another folder."
    )


class Predictor:
    """Predictor of one worker, which runs the model on samples and writes the requested results."""

    def __init__(
        self,
        request: PredictRequest,
        model: TrainedModel,
        shard: Shard,
        journal: Journal,
        *,
        sources: Sources,
        remaining: Labels,
    ) -> None:
        self._request, self._model, self._shard, self._journal = request, model, shard, journal
        self._sources = sources
        self._remaining = remaining  # indices of samples without a result
        self._batch_size = request.batch_size or model.job.training.batch_size
        self._results = ResultWriter(request, model)
        # Side of the tiles in pixels, or None if images are not divided.
        self._tile = model.size if request.tile == "auto" else request.tile
        silence_pillow()

    def predict_images(self) -> None:
        """Predict the requested images and videos, and write the results.

        Images that are resized to the model's input are distributed over the workers in batches. Images that are
        processed in tiles, and videos, are distributed as entire files.
        """
        files = self._sources.files
        is_video_file = np.array([is_video(files[number]) for number in self._remaining.tolist()], bool)
        stills, videos = self._remaining[~is_video_file], self._remaining[is_video_file]
        if self._tile is None:
            self._predict_resized(stills, is_distributed=True)
        else:
            local_stills = self._select_for_rank(stills)
            is_large = np.array([self._is_large(files[number]) for number in local_stills.tolist()], bool)
            self._predict_resized(local_stills[~is_large], is_distributed=False)
            self._predict_each(local_stills[is_large], self._predict_file_in_tiles)
        self._predict_each(self._select_for_rank(videos), self._predict_video)

    def predict_clouds(self) -> None:
        """Predict the classes of the points in this worker's part of the point clouds, and write the results."""
        self._predict_each(self._select_for_rank(self._remaining), self._predict_cloud)

    def predict_folder(self) -> None:
        """Predict the samples that a user-defined task reads from a folder, and write the results."""
        samples = open_folder_samples(self._model.task, self._model.job, self._sources.files[0])
        remaining_samples = RecordedSamples(samples, self._remaining)
        with Writers(self._journal, self._shard.advance) as writers:
            for batch in predict_batches(
                self._model, remaining_samples, batch_size=self._batch_size, partition=self._shard.partition
            ):
                batch_samples = [
                    self._describe_folder_sample(samples, int(self._remaining[index])) for index in batch.samples
                ]
                writers.submit(self._results.write_output, batch_samples, batch.outputs.cpu(), batch.inputs.cpu())
                self._record_skipped(remaining_samples.failed)  # clears `failed`
            self._record_skipped(remaining_samples.failed)  # also those after the last batch

    def _describe_folder_sample(self, samples: SampleSet, number: int) -> Sample:
        """Describe sample `number` of those that a user-defined task reads from a folder. It has no image file."""
        return Sample(
            number,
            name=f"{number:06}",
            path=printable(samples.path(number)),
            file="",
            sides=(0, 0),
            image=_refuse_image,
        )

    def _predict_resized(self, numbers: Labels, *, is_distributed: bool) -> None:
        """Predict images that are resized to the model's square input, as in training, and write the results.

        Unreadable images are recorded as skipped.

        `numbers` are the images' indices in the sources. If `is_distributed` is True, every worker gets the same
        indices and processes its part of them.
        """
        if not len(numbers):
            return
        files = [self._sources.files[number] for number in numbers.tolist()]
        images = RecordedImages(files, self._model, numbers)
        partition = self._shard.partition if is_distributed else ALL_SAMPLES
        with Writers(self._journal, self._shard.advance) as writers:
            for batch in predict_batches(self._model, images, batch_size=self._batch_size, partition=partition):
                batch_samples = [
                    self._create_sample(int(numbers[index]), self._find_drawn_sides(images, index))
                    for index in batch.samples
                ]
                writers.submit(self._results.write_output, batch_samples, batch.outputs.cpu(), batch.inputs)
                self._record_skipped(images.failed)  # clears `failed`
            self._record_skipped(images.failed)  # also those after the last batch

    def _find_drawn_sides(self, images: UnlabeledImages, index: int) -> tuple[int, int]:
        """Return the height and width of the image on which the prediction for an image is drawn.

        If the image was cropped while it was decoded, these are the height and width of the model's input.
        """
        height, width = images.sides[index].tolist()
        return (height, width) if height else (self._model.size, self._model.size)

    def _create_sample(self, number: int, sides: tuple[int, int]) -> Sample:
        """Create the `Sample` of the source file with index `number`, given the height and width of its image."""
        file = self._sources.files[number]
        return Sample(
            number,
            name=self._sources.names[number],
            path=printable(file),
            file=file,
            sides=sides,
            image=lambda: _read_rgb(file),
        )

    def _select_for_rank(self, numbers: Labels) -> Labels:
        """Return this worker's part of the sample indices `numbers`, which every worker must pass in the same order."""
        return numbers[self._shard.partition.rank :: self._shard.partition.world]

    def _predict_each(self, numbers: Labels, predict: Callable[[int], None]) -> None:
        """Call `predict` for each sample index in `numbers`, and report the progress.

        A sample for which it raises UnreadableImage is recorded as skipped.
        """
        for number in numbers.tolist():
            try:
                predict(number)
            except UnreadableImage as error:
                self._record_skipped({number: error.reason})
            else:
                self._shard.advance(1)

    def _is_large(self, file: str) -> bool:
        """Return True if a side of an image is longer than a tile. An unreadable image counts as small."""
        assert self._tile is not None
        try:
            with open_rows(file, self._model.channels, self._model.bands) as rows:
                return max(rows.sides) > self._tile
        except Exception:  # not a readable TIFF: check only the header; decoding reports damage
            with suppress(Exception), open_image(file) as image:
                return max(image.size) > self._tile
        return False

    def _predict_file_in_tiles(self, number: int) -> None:
        """Predict the source image with index `number` in tiles, and write the results. Raises UnreadableImage.

        A TIFF image is read row by row if its encoding allows it. Other images are decoded completely.
        """
        file = self._sources.files[number]
        with ExitStack() as stack:
            picture: RowReader
            try:
                rows = stack.enter_context(open_rows(file, self._model.channels, self._model.bands))
                picture = _TiffPicture(rows, file)
            except Exception:  # not a readable TIFF; decoding reports damage
                picture = self._decode(file)
            self._predict_in_tiles(number, picture)

    def _predict_in_tiles(self, number: int, picture: RowReader) -> None:
        """Run the model on the tiles of `picture`, write the results, and record them in the journal.

        `number` is the image's index in the sources.
        """
        assert self._tile is not None
        tiling = Tiling(self._tile, self._request.overlap, self._batch_size)
        sample = self._create_sample(number, picture.sides)
        if self._model.task.entry.predicts == "objects":
            prediction = detect_in_tiles(self._model, picture, tiling, self._request.threshold)
            self._journal.add(self._results.write_prediction(sample, prediction))
        else:
            self._journal.add(self._results.write_maps(sample, iterate_tiled_maps(self._model, picture, tiling)))

    def _decode(self, file: str) -> ImageInMemory:
        """Decode an image to memory, in its full size. Raises UnreadableImage."""
        try:
            return ImageInMemory(decode_pixels(read_image(file), self._model.channels, self._model.bands))
        except Exception as error:  # decoders raise many errors for broken files
            raise UnreadableImage(printable(file), describe_failure(error)) from error

    def _predict_cloud(self, number: int) -> None:
        """Predict the point cloud with index `number` in the sources, and write the result. Raises UnreadableImage."""
        file = self._sources.files[number]
        try:
            prediction = predict_cloud(self._model, file, self._batch_size)
        except UnreadableImage:
            raise
        except Exception as error:  # readers raise many errors for broken files
            raise UnreadableImage(printable(file), describe_failure(error)) from error
        sample = self._create_sample(number, (0, 0))  # a cloud has no height and width
        self._journal.add(self._results.write_prediction(sample, prediction))

    def _predict_video(self, number: int) -> None:
        """Run the model on the frames of the video or camera with index `number` in the sources, and write the results.

        Frames are processed in batches. One batch is read ahead, because results must state which frame is the last
        one. Raises UnreadableImage.
        """
        file, name = self._sources.files[number], self._sources.names[number]
        try:
            rate = read_frame_rate(file)
            video_frames = islice(frames(file, 3), self._request.max_frames)  # in color
            overlay = f"overlays/{name}.mp4"
            path = Path(self._request.out, overlay)
            if self._request.overlays:
                paths.make_folder(path.parent)
            with VideoWriter(path, rate) as video:
                results = ResultWriter(self._request, self._model, self._make_video_drawer(video, overlay))
                first_frame = 0
                batch = list(islice(video_frames, self._batch_size))
                while batch:
                    next_batch = list(islice(video_frames, self._batch_size))
                    self._predict_frames(results, number, batch, first_frame, is_end=not next_batch)
                    first_frame += len(batch)
                    batch = next_batch
        except NoVideo as error:
            raise UnreadableImage(printable(file), str(error)) from error

    def _make_video_drawer(self, video: VideoWriter, path: str) -> Callable[[Sample, Bytes], str]:
        """Return a function that appends a drawn frame to `video` and returns `path`, its path in the output folder."""

        def draw(_: Sample, drawn: Bytes) -> str:
            video.add(drawn)
            return path

        return draw

    def _predict_frames(
        self, results: ResultWriter, number: int, images: Sequence[Bytes], first_frame: int, *, is_end: bool
    ) -> None:
        """Run the model on consecutive frames of a video, uint8 [h, w, 3] each, and write the results to `results`.

        `number` is the index of the video among the sources, and `first_frame` that of the first frame in the video.
        The video ends after these frames if `is_end` is True.
        """
        file, name = self._sources.files[number], self._sources.names[number]
        channels = self._model.channels
        model_images = [image if channels == 3 else image.mean(2).round().astype(np.uint8) for image in images]
        try:
            inputs = self._model.inputs(model_images)
        except ValueError as error:
            raise NoVideo(str(error)) from error
        entries = []
        for index, output in enumerate(self._model.outputs(inputs).cpu()):
            image = images[index]
            frame = first_frame + index
            sample = Sample(
                number,
                name=f"{name}/{frame:06}",
                path=f"{printable(file)}#{frame}",
                file="",
                sides=image.shape[:2],
                image=lambda image=image: image,  # type: ignore[misc]
                frame=frame,
                last=is_end and index == len(images) - 1,
            )
            entries.append(results.write_output(sample, output, inputs[index]))
        self._journal.add(*entries)

    def _record_skipped(self, failed: dict[int, str]) -> None:
        """Record that samples could not be read. Clears `failed`, which maps their indices to the reasons."""
        while failed:
            number, reason = failed.popitem()
            path = printable(self._sources.files[number]) if self._sources.kind != "folder" else f"sample {number}"
            self._journal.add(Entry(sample=number, path=path, skipped=reason))
            self._shard.warn_unreadable(path, reason)
            self._shard.advance(1)


def predict_cloud(model: TrainedModel, file: str, batch_size: int) -> PointClasses:
    """Predict the class of each point in the file of a point cloud, in batches of `batch_size` samples.

    Each point is predicted exactly once. Raises UnreadableImage.
    """
    files = model.task.files
    assert files is not None
    samples, count = files.open(file, model.preprocessing, model.job)
    classes, probability = np.full(count, NO_CLASS, np.uint8), np.zeros(count, np.float32)
    failed: list[str] = []
    for batch in predict_batches(
        model, samples, batch_size=batch_size, on_unreadable=lambda path, reason: failed.append(reason)
    ):
        for sample, output in zip(batch.samples.tolist(), batch.outputs.cpu(), strict=True):
            scores = model.objective.compute_scores(output, size=0)  # not an image
            assert isinstance(scores, PointScores)
            most_likely = scores.probabilities.max(0)
            rows, is_predicted = samples.get_points(sample)
            classes[rows[is_predicted]] = most_likely.indices.numpy()[is_predicted]
            probability[rows[is_predicted]] = most_likely.values.numpy()[is_predicted]
    if failed:
        raise UnreadableImage(file, failed[0])
    return PointClasses(classes=model.classes, numbers=classes, probability=probability)


class _TiffPicture:
    """TIFF image that is read row by row. `rows` raises UnreadableImage if the file is damaged."""

    def __init__(self, rows: TiffRows, file: str) -> None:
        self._rows, self._file = rows, file
        self.sides = rows.sides

    def rows(self, first: int, last: int) -> Bytes:
        """Return the rows from `first` up to, but not including, `last`.

        Raises UnreadableImage with the decoder's message.
        """
        try:
            return self._rows.rows(first, last)
        except Exception as error:  # decoders raise many errors for broken files
            raise UnreadableImage(printable(self._file), describe_failure(error)) from error


def _read_rgb(file: str) -> Bytes:
    """Read an image as RGB, uint8 [h, w, 3], so that a prediction can be drawn on it."""
    return np.asarray(read_to_show(file).convert("RGB"))


def _refuse_image() -> Bytes:
    """Raise AssertionError, in place of returning the image of a sample that has no image file."""
    raise AssertionError("samples that are not files are not drawn on")
