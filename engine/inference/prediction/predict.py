"""Carry out a request for predictions: validate it, run the workers, and summarize the results."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from engine.contract.catalogue import predictions_of
from engine.contract.inference.prediction import (
    CAMERA,
    PREDICTED,
    PREDICTIONS_FILE,
    TILED,
    Predicted,
    PredictRequest,
    WrittenFormat,
    formats_of,
)
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.data.splits import printable
from engine.inference.devices import OnProgress, run_on_devices
from engine.inference.prediction import joining
from engine.inference.prediction.journal import WORK_FOLDER, CompletedSamples
from engine.inference.prediction.plan import LOCK, ModelFacts, Plan, PlanFolder, RequestState
from engine.inference.prediction.samples import open_folder_samples
from engine.inference.prediction.sources import Kind, Sources, list_sources
from engine.inference.prediction.work import create_write_problem
from engine.inference.run import Run
from engine.inference.trained_model import CannotLoad, find_checkpoint
from engine.inference.video import is_video
from engine.runs.folder import RunFolder
from engine.system import file_locks, paths
from engine.system.files import MAX_RESULT_BYTES, open_file, read_file
from engine.system.plugins import install_command
from engine.tasks.registry import TASKS

MAX_OVERLAP = 0.9
MIN_TILE = 16


def predict(request: PredictRequest, on_progress: OnProgress) -> Path:
    """Make the requested predictions, and return the path of the summary, a `Predicted` as JSON.

    If the output folder has results of the same request, a finished prediction is returned and an unfinished one is
    resumed. `on_progress` is called with the progress messages of the workers. Raises CannotLoad.
    """
    run = Run(request.run)
    checkpoint = find_checkpoint(RunFolder(run.folder), request.checkpoint)
    files = tuple(map(_make_absolute, request.paths))
    request = structs.replace(request, paths=files, out=os.path.abspath(request.out))
    problems = _find_request_problems(request, run.job)
    try:
        sources = list_sources(
            request.paths, _find_source_kind(run.job, run.folder), request.out, TASKS[run.job.task].files
        )
        problems += _find_video_problems(sources)
    except CannotLoad as error:
        problems += error.problems
    if problems:
        raise CannotLoad(*problems)
    try:
        with open_file(checkpoint) as stream:
            state = RequestState.create(request, hashlib.file_digest(stream, "sha256").hexdigest(), sources)
    except OSError as error:
        problem = Problem("checkpoint", f"{checkpoint} can't be read: {error.strerror}.", "Check the path.")
        raise CannotLoad(problem) from error
    out = Path(request.out)
    try:
        folder = _open_folder(out, state)
        with _lock_folder(folder.folder, out):
            return _predict_or_resume(request, run, sources, state, folder=folder, on_progress=on_progress)
    except OSError as error:
        raise CannotLoad(create_write_problem(out, error)) from error


def _predict_or_resume(
    request: PredictRequest,
    run: Run,
    sources: Sources,
    state: RequestState,
    *,
    folder: PlanFolder,
    on_progress: OnProgress,
) -> Path:
    """Predict all samples, or resume an interrupted prediction, and return the path of the summary.

    If the results in `folder` belong to the same `state` and their summary is complete, nothing is predicted. Raises
    CannotLoad if no sample can be read.
    """
    summary_file = Path(request.out, PREDICTIONS_FILE)
    if folder.read_state() == state and summary_file.is_file():
        with suppress(OSError, msgspec.DecodeError):
            PREDICTED.decode(read_file(summary_file, MAX_RESULT_BYTES))
            return summary_file
    folder.write_state(state)
    started, speed = time.monotonic(), _SpeedRecorder(on_progress)
    completed = _run_workers(request, run, sources, folder, speed.forward)
    model = folder.read_model()
    summary, files = joining.write_tables(request, run.job.task, model.classes, completed)
    if not summary.predicted:
        first = summary.skipped[0]
        message = f"None of the files can be read. The first, {first.path}: {first.reason}."
        folder.clear()
        raise CannotLoad(Problem("paths", message, "Choose other files."))
    predicted = _create_summary(request, run, model, summary, files)
    timing = {"seconds": time.monotonic() - started, "images_per_second": speed.last}
    paths.write_atomically(summary_file, msgspec.json.encode(structs.replace(predicted, **timing)))
    folder.clear()
    return summary_file


def _create_summary(
    request: PredictRequest, run: Run, model: ModelFacts, summary: joining.PredictionSummary, files: list[WrittenFormat]
) -> Predicted:
    """Return the summary of a prediction's results, without the duration and the speed."""
    return Predicted(
        run=str(run.folder),
        checkpoint=find_checkpoint(RunFolder(run.folder), request.checkpoint).name,
        sha256=model.sha256,
        task=run.job.task,
        classes=model.classes,
        legend=model.legend,
        request=request,
        samples=summary.samples,
        predicted=summary.predicted,
        skipped_count=summary.skipped_count,
        skipped=tuple(summary.skipped),
        files=tuple(files),
        class_counts=summary.class_counts,
        seconds=0.0,  # set by the caller
        finished_at=time.time(),
        rows=tuple(summary.rows),
    )


def _run_workers(
    request: PredictRequest, run: Run, sources: Sources, folder: PlanFolder, on_progress: OnProgress
) -> CompletedSamples:
    """Run the workers on the samples that are not completed, and return all completed samples."""
    count = _count_samples(sources, run.job)
    completed = CompletedSamples(folder.folder, count)
    remaining = np.flatnonzero(~completed.samples)
    # Without remaining samples, workers still start if none has reported the facts about the model yet.
    if not len(remaining) and folder.has_model:
        return completed
    folder.write_plan(Plan(kind=sources.kind, samples=count, start=completed.starts + 1), sources, remaining)
    title = f"Predicting for the {len(remaining):,} left of {count:,}" if len(remaining) < count else "Predicting"
    run_on_devices(request, folder.folder, on_progress, total=len(remaining), what=title)
    return CompletedSamples(folder.folder, count)


class _SpeedRecorder:
    """Callback that forwards progress messages and remembers the latest speed."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.last: float | None = None

    def forward(self, message: Progress) -> None:
        """Pass on a progress message, and remember its speed if it has one."""
        if message.images_per_second:
            self.last = message.images_per_second
        self._on_progress(message)


def _make_absolute(path: str) -> str:
    """Return the absolute path of a file. The name of a camera is returned unchanged."""
    return path if path.startswith(CAMERA) else os.path.abspath(path)


def _find_source_kind(job: Job, run: Path) -> Kind:
    """Return the kind of input of a run's model: "images", "clouds" (point clouds) or "folder".

    A custom task that does not use images reads its samples from a folder.
    """
    if TASKS[job.task].files is not None:
        return "clouds"
    planned = RunFolder(run).read_plan()
    # Every model of images has a framing, which fits them to its input.
    has_no_images = planned is not None and planned.preprocessing is not None and not planned.preprocessing.framing
    return "folder" if has_no_images else "images"


def _count_samples(sources: Sources, job: Job) -> int:
    """Return the number of samples: those in the folder of a custom task, otherwise the number of source files."""
    if sources.kind == "folder":
        return len(open_folder_samples(TASKS[job.task], job, sources.files[0]))
    return len(sources.files)


def _find_request_problems(request: PredictRequest, job: Job) -> list[Problem]:
    """Return the problems with the settings of a prediction. Its input files are not checked."""
    problems: list[Problem] = []
    formats = formats_of(job.task)
    unknown = [name for name in request.formats if name not in formats]
    if unknown:
        message = f"Results of this task can't be written as {', '.join(unknown)}."
        problems.append(Problem("formats", message, f"Choose among {', '.join(formats)}."))
    if request.tile is not None and predictions_of(job.task) not in TILED:
        problems.append(Problem("tile", "This task does not look at images in tiles.", "Leave it out."))
    if isinstance(request.tile, int) and request.tile < MIN_TILE:
        problems.append(Problem("tile", f"A tile has at least {MIN_TILE} px.", "Choose a larger one, or auto."))
    if not 0 <= request.overlap <= MAX_OVERLAP:
        problems.append(Problem("overlap", f"The overlap must be from 0 to {MAX_OVERLAP}.", "0.2 is usual."))
    if not 0 <= request.threshold <= 1:
        problems.append(Problem("threshold", "The threshold must be from 0 to 1.", "0.5 is usual."))
    if request.max_frames is not None and request.max_frames < 1:
        problems.append(Problem("max_frames", "The number of frames must be at least 1.", "Leave it out for all."))
    if request.max_frames is None and any(path.startswith(CAMERA) for path in request.paths):
        problems.append(Problem("max_frames", "A camera never ends.", "Set the number of frames."))
    return problems


def _find_video_problems(sources: Sources) -> list[Problem]:
    """Return a problem if there are videos or cameras, but OpenCV is not installed."""
    has_videos = sources.kind == "images" and any(map(is_video, sources.files))
    if not has_videos or importlib.util.find_spec("cv2") is not None:
        return []
    remedy = f"Install it with: {install_command('video')}"
    return [Problem("paths", "Videos and cameras need OpenCV.", remedy)]


def _open_folder(out: Path, state: RequestState) -> PlanFolder:
    """Open the work folder in `out`, creating both if they don't exist.

    Raises CannotLoad if `out` contains other files, or results that don't belong to `state`. Raises OSError.
    """
    folder_text = printable(str(out))
    if out.exists() and not out.is_dir():
        raise CannotLoad(Problem("out", f"{folder_text} is a file.", "Choose a folder."))
    folder = PlanFolder(out / WORK_FOLDER)
    saved_state = folder.read_state() if out.is_dir() else None
    if saved_state is not None and saved_state != state:
        message = f"{folder_text} holds the results of other predictions: {_describe_difference(saved_state, state)}."
        raise CannotLoad(
            Problem("out", message, "Choose another folder, or give the same arguments as before to continue.")
        )
    if saved_state is None and out.is_dir() and any(entry.name != WORK_FOLDER for entry in out.iterdir()):
        raise CannotLoad(Problem("out", f"The folder {folder_text} is not empty.", "Choose an empty or a new folder."))
    paths.make_folder(out)
    if not os.access(out, os.W_OK | os.X_OK):
        raise CannotLoad(Problem("out", f"The folder {folder_text} can't be written to.", "Choose another folder."))
    paths.make_private_folder(folder.folder)
    return folder


def _describe_difference(saved: RequestState, requested: RequestState) -> str:
    """Describe for the user why `requested` can't continue the results of `saved`."""
    before, now = structs.asdict(saved.request), structs.asdict(requested.request)
    fields = [name for name in before if before[name] != now[name]]
    if fields:
        return f"different {', '.join(fields)}"
    return "the checkpoint has changed" if saved.sha256 != requested.sha256 else "the files have changed"


@contextmanager
def _lock_folder(folder: Path, out: Path) -> Iterator[None]:
    """Context manager that locks the work folder `folder` of the output folder `out`.

    Raises OSError, and CannotLoad if another process has locked the folder.
    """
    descriptor = file_locks.open_file(folder / LOCK, os.O_CREAT)
    try:
        is_locked = file_locks.try_lock(descriptor)
    except OSError as error:
        is_locked = error.errno in file_locks.LOCKS_UNSUPPORTED  # such file systems are used without a lock
    if not is_locked:
        os.close(descriptor)
        message = f"Another process is writing predictions into {printable(str(out))}."
        raise CannotLoad(Problem("out", message, "Wait for it, or choose another folder."))
    try:
        yield
    finally:
        with suppress(OSError):
            file_locks.unlock(descriptor)
