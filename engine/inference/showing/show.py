"""Draw the samples in an evaluation with their annotations and predictions. A worker on one device does this."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from engine.contract.inference.evaluation import Samples
from engine.contract.inference.messages import DRAWINGS_FILE, SampleDrawing, SampleDrawings, ShowRequest
from engine.contract.problems import Problem
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.drawing import encode_png
from engine.data.loading.base_loader import Batch
from engine.inference.devices import OnProgress, run_on_devices
from engine.inference.evaluation.dataset import open_data
from engine.inference.review.samples import find_displayed_file
from engine.inference.sweep import iterate_batches
from engine.inference.trained_model import CannotLoad, TrainedModel, find_checkpoint
from engine.inference.worker import Shard
from engine.runs.evaluations import DamagedEvaluation, SavedEvaluation, read_evaluation
from engine.runs.folder import RunFolder
from engine.system import paths
from engine.system.format import counted

_BATCH_SIZE = 4


def show(request: ShowRequest, on_progress: OnProgress) -> Path:
    """Draw the requested samples, and return the path of the file with the `SampleDrawings`. Raises CannotLoad.

    Only the first of the requested devices is used.
    """
    find_checkpoint(RunFolder(request.run), request.checkpoint)  # raises CannotLoad if there is none
    saved, samples = _read_evaluation(request)
    unknown = [number for number in request.samples if not 0 <= number < len(samples.paths)]
    if unknown or not request.samples:
        message = f"The evaluation has {counted(len(samples.paths), 'sample')}, from 0 on."
        raise CannotLoad(Problem("samples", message, "Name some of them."))
    out = Path(request.out).absolute()
    paths.make_folder(out)
    evaluation = str(saved.folder.absolute())
    request = structs.replace(request, devices=request.devices[:1], out=str(out), evaluation=evaluation)
    with tempfile.TemporaryDirectory() as folder:
        run_on_devices(request, Path(folder), on_progress, total=len(request.samples), what="Drawing samples")
    return out / DRAWINGS_FILE


def draw_samples(request: ShowRequest, model: TrainedModel, shard: Shard) -> None:
    """Draw the requested samples, and write the drawings with an index of them to the output folder.

    Raises CannotLoad if the dataset has changed since the evaluation.
    """
    saved, samples = _read_evaluation(request)
    evaluation = saved.evaluation
    samples_by_split = dict(open_data(model, evaluation.dataset, evaluation.split).splits)
    for number in request.samples:
        split = samples_by_split.get(samples.splits[number])
        if find_displayed_file(split, samples.indices[number], samples.paths[number]) is None:
            message = f"{evaluation.dataset} has changed since the evaluation."
            raise CannotLoad(Problem("evaluation", message, "Evaluate the model again."))
    drawings = []
    for split_name, split in samples_by_split.items():
        numbers = [number for number in request.samples if samples.splits[number] == split_name]
        number_by_index = {samples.indices[number]: number for number in numbers}
        if not number_by_index:
            continue
        selected = np.array(list(number_by_index), np.int64)
        for batch in iterate_batches(model, split, batch_size=_BATCH_SIZE, selected=selected):
            drawings += _draw_batch(model, split, batch, number_by_index, Path(request.out))
            shard.advance(len(batch.inputs))
    result = SampleDrawings(legend=model.objective.legend, samples=tuple(drawings))
    paths.write_atomically(Path(request.out) / DRAWINGS_FILE, msgspec.json.encode(result))


def _draw_batch(
    model: TrainedModel, split: ImageSet | SampleSet, batch: Batch, number_by_index: dict[int, int], out: Path
) -> list[SampleDrawing]:
    """Draw the annotations and predictions of the samples in a batch, and return a description of each drawing.

    The drawings are written to the folder `out` as PNG files. `number_by_index` maps the index of a sample in `split`
    to its number in the evaluation.
    """
    outputs = model.outputs(batch.inputs).cpu()
    assert batch.samples is not None
    drawings = []
    for index, model_input, target, output in zip(
        batch.samples.tolist(), batch.inputs, batch.targets, outputs, strict=True
    ):
        number = number_by_index[index]
        image = model.to_display(model_input)
        truth = model.objective.show_truth(image, target.cpu())
        prediction = model.objective.show_prediction(image, output)
        names = [f"{number}-{kind}.png" for kind in ("truth", "prediction")]
        for name, drawing in zip(names, (truth, prediction), strict=True):
            paths.write_atomically(out / name, encode_png(drawing.image, drawing.cloud))
        drawings.append(
            SampleDrawing(
                number=number,
                truth_png=names[0],
                prediction_png=names[1],
                truth_words=truth.text,
                prediction_words=prediction.text,
                legend=tuple(sorted({*truth.legend, *prediction.legend})),
            )
        )
    return drawings


def _read_evaluation(request: ShowRequest) -> tuple[SavedEvaluation, Samples]:
    """Read the requested evaluation, and its samples. Raises CannotLoad if it is damaged."""
    try:
        saved = read_evaluation(Path(request.evaluation))
        return saved, saved.read_samples()
    except DamagedEvaluation as error:
        raise CannotLoad(Problem("evaluation", f"{error}.", "Evaluate the model again.")) from error
