"""Evaluate the model of a run. Results are saved atomically in the run's folder."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from engine.contract.inference.evaluation import (
    CURVES_FILE,
    EVALUATION_FILE,
    PROBABILITIES_FILE,
    RESAMPLES_FILE,
    SAMPLES_FILE,
    Curves,
    EvaluateRequest,
    Evaluation,
    Resamples,
    Samples,
)
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.inference.devices import OnProgress, run_on_devices
from engine.inference.evaluation.bootstrap import ResampledValues, find_intervals, resample
from engine.inference.evaluation.dataset import EvaluationData, open_data
from engine.inference.evaluation.measure import MergedResults, merge_results, name_results_file
from engine.inference.trained_model import CannotLoad, TrainingFacts, find_checkpoint, read_training
from engine.runs.evaluations import FOLDER
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.format import counted
from engine.tasks.analysis import EvaluatedMetrics, Intervals, MetricValues
from engine.training.checkpointing.checkpoint_files import DamagedCheckpoint, verify_checkpoint


def evaluate(request: EvaluateRequest, on_progress: OnProgress) -> Path:
    """Evaluate a model as `request` describes, and return the path of the file with the `Evaluation`.

    Raises CannotLoad.
    """
    run = RunFolder(request.run)
    training = read_training(run)
    checkpoint = find_checkpoint(run, request.checkpoint)
    on_progress(Progress(fraction=0.0, what="Opening the dataset"))
    data = open_data(training, request.dataset, request.split)
    on_progress(Progress(fraction=0.0, what="Opening the dataset", warnings=data.warnings))
    with _make_work_folder(run) as folder:
        sha256 = verify_checkpoint(checkpoint)
        title = f"Evaluating {counted(len(data), 'sample')}"
        run_on_devices(request, folder, on_progress, total=len(data), what=title)
        on_progress(Progress(fraction=0.0, what="Computing metrics"))
        files = [folder / name_results_file(rank) for rank in range(len(request.devices))]
        results = merge_results(files)
        if not len(results.samples):
            raise CannotLoad(Problem("dataset", "None of the samples can be read.", "Choose a folder of intact files."))
        evaluation = Evaluation(
            id="",
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            run=run.run_id,
            task=training.job.task,
            checkpoint=checkpoint.name,
            sha256=sha256,
            dataset=data.folder,
            split=data.split,
            classes=training.classes,
            samples=len(results.samples),
            skipped=results.skipped,
            mapping=data.mapping,
            warnings=data.warnings,
        )
        contents = _compute_results(evaluation, training, results, on_progress)
        for path in folder.iterdir():  # the request and the workers' files
            path.unlink()
        contents[SAMPLES_FILE] = msgspec.msgpack.encode(_convert_sample_results(data, results))
        return _save_evaluation(folder, contents, data.split)


@contextmanager
def _make_work_folder(run: RunFolder) -> Iterator[Path]:
    """Create a temporary folder next to the run's evaluations. At the end, delete it unless it was moved.

    Raises CannotLoad.
    """
    try:
        parent = run.path / FOLDER
        paths.make_folder(parent)
        if parent.is_symlink():  # a link in a copied run folder could point anywhere
            raise NotADirectoryError(errno.ENOTDIR, "it is a link", str(parent))
        folder = Path(tempfile.mkdtemp(prefix=".part-", dir=parent))
    except OSError as error:
        raise _create_write_error(run.path, error) from error
    try:
        yield folder
    except DamagedCheckpoint as error:
        raise CannotLoad(Problem("checkpoint", f"A file is damaged: {error}.", "Choose another checkpoint.")) from error
    except OSError as error:
        raise _create_write_error(parent, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _create_write_error(folder: Path, error: OSError) -> CannotLoad:
    """Create the error for an evaluation that can't be saved in a folder."""
    message = f"The evaluation can't be saved in {folder}: {error.strerror or error}."
    return CannotLoad(Problem("run", message, "Free some space there, or give yourself permission to write to it."))


def _compute_results(
    evaluation: Evaluation, training: TrainingFacts, results: MergedResults, on_progress: OnProgress
) -> dict[str, bytes]:
    """Compute the metrics, intervals and curves, and return the contents of the files to save, keyed by file name.

    The file with the results of the samples is not included. `evaluation` does not have an id at this point.
    """
    objective = training.create_objective()
    analysis = objective.create_analysis(training.classes)
    analysis.prepare(results.columns)
    count = len(results.samples)

    def fill_metrics(weights: np.ndarray) -> EvaluatedMetrics:
        """Return the metrics as if each sample had been evaluated as often as its weight."""
        new_metrics = analysis.create_metrics(1.0)  # the scale only affects updates
        metrics = {name: results.states[name].fill(metric, weights) for name, metric in new_metrics.items()}
        return EvaluatedMetrics(metrics, weights, results.columns)

    def compute_values(weights: np.ndarray) -> MetricValues:
        return analysis.compute_values(fill_metrics(weights))

    measured = fill_metrics(np.ones(count, np.int64))
    values_of_all = analysis.compute_values(measured)
    draws = resample(
        count, compute_values, lambda fraction: on_progress(Progress(fraction=fraction, what="Computing intervals"))
    )
    intervals = Intervals(*find_intervals(values_of_all, draws))
    # The task's metrics, then those that only the analysis has. Metrics that are not finite have no interval.
    known_ids = {entry.id for entry in objective.entry.metrics}
    analysis_entries = (entry for entry in analysis.entries if entry.id not in known_ids)
    entries = tuple(entry for entry in (*objective.entry.metrics, *analysis_entries) if entry.id in intervals.measures)
    evaluation = msgspec.structs.replace(
        evaluation,
        entries=entries,
        measures={entry.id: intervals.measures[entry.id] for entry in entries},
        per_class=dict(intervals.per_class),
        confusion=measured.task_metric.confusion(),
        resamples=draws.resamples,
        **analysis.compute_details(measured, intervals),
    )
    contents = {
        EVALUATION_FILE: msgspec.json.encode(evaluation),
        RESAMPLES_FILE: _encode_resamples(evaluation, draws),
    }
    curves = analysis.compute_curves(measured, intervals)
    if curves:
        contents[CURVES_FILE] = msgspec.msgpack.encode(Curves(classes=curves))
    if results.columns.probabilities is not None:
        contents[PROBABILITIES_FILE] = _encode_array(results.columns.probabilities)
    return contents


def _encode_array(values: np.ndarray) -> bytes:
    """Encode an array as in a .npy file."""
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()


def _encode_resamples(evaluation: Evaluation, draws: ResampledValues) -> bytes:
    """Encode the metrics of all bootstrap resamples as MessagePack. Values that aren't finite become None."""
    measures = {
        name: tuple(value if np.isfinite(value) else None for value in draws.measures[name].tolist())
        for name in evaluation.measures
        if name in draws.measures
    }
    return msgspec.msgpack.encode(Resamples(measures=measures))


def _convert_sample_results(data: EvaluationData, results: MergedResults) -> Samples:
    """Convert the evaluation results of each sample to the type that is saved."""
    split_names, split_samples = zip(*data.splits, strict=True)
    # Samples are numbered over all splits. Here, each number becomes a split and an index in it.
    first_numbers = np.cumsum([0, *map(len, split_samples)])
    split_of = np.searchsorted(first_numbers, results.samples, side="right") - 1
    indices = (results.samples - first_numbers[split_of]).tolist()
    columns = results.columns
    return Samples(
        paths=tuple(
            split_samples[split_index].path(index)
            for split_index, index in zip(split_of.tolist(), indices, strict=True)
        ),
        splits=tuple(split_names[split_index] for split_index in split_of.tolist()),
        indices=tuple(indices),
        losses=tuple(results.losses) if results.losses is not None else None,
        correct=tuple(columns.correct) if columns.correct is not None else None,
        true=tuple(columns.true) if columns.true is not None else None,
        predicted=tuple(columns.predicted) if columns.predicted is not None else None,
        confidence=tuple(columns.confidence) if columns.confidence is not None else None,
    )


def _save_evaluation(folder: Path, contents: dict[str, bytes], split: str) -> Path:
    """Write the files of an evaluation, and move them to their final folder. Return the path of the main file.

    `contents` are the files by name. The folder is moved only after all files are on the disk. Raises OSError.
    """
    parent = folder.parent
    evaluation = msgspec.json.decode(contents.pop(EVALUATION_FILE), type=Evaluation)
    base_name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{split}"
    target, number = parent / base_name, 1
    while target.exists():
        number += 1
        target = parent / f"{base_name}-{number}"
    evaluation = msgspec.structs.replace(evaluation, id=target.name)
    for name, content in contents.items():
        paths.write_atomically(folder / name, content, sync=True)
    encoded = msgspec.json.format(msgspec.json.encode(evaluation), indent=1)
    paths.write_atomically(folder / EVALUATION_FILE, encoded, sync=True)
    os.rename(folder, target)
    return target / EVALUATION_FILE
