"""Training of each task from scratch: `python tests/benchmarks/every_task.py [--only ROW ...]`.

Each row's job is trained on the CPU with the recipe *From scratch*. The table shows the task's main metric on the
validation split, for the untrained model, for the best epoch, and for a named baseline that learns nothing, together
with the training time. Other metrics follow. The exit code is 1 if a row doesn't exceed its baseline by `margin`. Rows
whose dataset is missing are skipped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from engine.cli.main import create_parser
from engine.cli.train import validate
from engine.contract.events import Validation
from engine.contract.job import Job
from engine.contract.problems import errors
from engine.data.datasets.boxed_images import BoxedImages
from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.loading.base_loader import Batch
from engine.data.randomness import RandomStreams
from engine.models.tensor_detector import MASK_SIDE
from engine.models.torchvision_detectors import split_instances
from engine.strategies import STRATEGIES
from engine.supervisor.environment import usable_cores
from engine.tasks.base import DatasetInfo, Task
from engine.tasks.edges.decoding import OUTSIDE
from engine.tasks.registry import TASKS
from engine.tasks.roads.directions import DIRECTIONS, LINE
from engine.tasks.roads.models import CLASSES, SCORES
from engine.training.dataloaders import DataLoaders
from tests.benchmarks.frame import DATASETS, describe_environment, make_parser, use_empty_home
from tests.support.specs import make_worker_spec
from tests.support.worker_group import Forker, WorkerGroup

STEEPEST = 1443 / 255
"""Maximum magnitude of the Sobel gradient for an image with values from 0 to 1."""

Trivial = Callable[[Batch, Splits], Tensor]
"""Baseline: a function that returns the outputs for a batch, in the same form as the outputs of a model."""


@dataclass(frozen=True)
class TableRow:
    """Row of the printed table: folder of a dataset, flags for `footplate train`, and a trivial baseline.

    `margin` is the required difference between the main metric of the trained model and that of the baseline.
    """

    dataset: str
    flags: str
    trivial: Trivial
    trivial_name: str
    margin: float = 0.05


def predict_majority_class(batch: Batch, splits: Splits) -> Tensor:
    """Predict the most frequent class of the training split at each pixel or point."""
    counts = splits.train.class_counts(len(splits.classes))
    # If images are mixed in training, targets are fractions of each class.
    shape = batch.targets.shape[:1] if batch.targets.is_floating_point() else batch.targets.shape
    outputs = torch.zeros((shape[0], len(counts), *shape[1:]))
    outputs[:, int(np.argmax(counts))] = 1
    return outputs


def predict_lines_everywhere(batch: Batch, splits: Splits) -> Tensor:
    """Predict lines everywhere, in the most frequent direction of line pixels in the training split."""
    side, train = batch.inputs.shape[-1], splits.train
    assert isinstance(train, ImageSet)
    along = torch.cat([train.load(place, side, splits.channels)[-1].flatten() for place in range(len(train))])
    outputs = torch.zeros((len(batch.inputs), SCORES, *batch.inputs.shape[-2:]))
    outputs[:, LINE] = 1
    outputs[:, CLASSES + int(torch.bincount(along[along < DIRECTIONS]).argmax())] = 1
    return outputs


def predict_sobel_gradient(batch: Batch, splits: Splits) -> Tensor:
    """Predict the square root of the Sobel gradient's magnitude as the edge probability.

    Without the root, weak edges would not exceed the lowest threshold.
    """
    mean, std = (np.asarray(values)[:, None, None] for values in TASKS["edge_detection"].get_normalization(Job(), 3))
    inside = batch.targets[:, 0].numpy() != OUTSIDE
    likely = np.zeros((len(batch.inputs), 1, *batch.inputs.shape[-2:]), np.float32)
    for image, found, pixels in zip(batch.inputs.numpy(), likely[:, 0], inside, strict=True):
        area = np.ix_(pixels.any(1), pixels.any(0))
        gray = (image * std + mean).mean(0)[area]
        found[area] = np.sqrt(np.hypot(ndimage.sobel(gray, 0), ndimage.sobel(gray, 1)) / STEEPEST)
    return torch.from_numpy(likely).clamp(1e-6, 1 - 1e-6).logit()


def predict_boxes_on_a_grid(batch: Batch, splits: Splits) -> Tensor:
    """Predict boxes that tile the image, in the median size of each class. The score is the class's frequency."""
    side = batch.inputs.shape[-1]
    train = splits.train
    assert isinstance(train, BoxedImages)
    rows = train.targets_of(np.arange(len(train)))
    return _make_grid(rows[..., :4][rows[..., 4] >= 0] * side, rows[..., 4][rows[..., 4] >= 0], side, len(batch.inputs))


def predict_objects_on_a_grid(batch: Batch, splits: Splits) -> Tensor:
    """Predict boxes as `predict_boxes_on_a_grid` does, with masks that fill them."""
    side = batch.inputs.shape[-1]
    known = [split_instances(target) for target in batch.targets]
    boxes, classes = torch.cat([each.boxes for each in known]), torch.cat([each.classes for each in known])
    found = _make_grid(boxes, classes, side, len(batch.inputs))
    return functional.pad(found, (0, MASK_SIDE * MASK_SIDE), value=1.0)


def _make_grid(boxes: Tensor, classes: Tensor, side: int, images: int) -> Tensor:
    found = []
    for number in classes.unique().tolist():
        of_class = boxes[classes == number]
        wide, high = (of_class[:, 2:] - of_class[:, :2]).median(0).values.tolist()
        for top in np.arange(0, side - high / 2, high):
            for left in np.arange(0, side - wide / 2, wide):
                found.append((left, top, left + wide, top + high, len(of_class) / len(boxes), number))
    return torch.tensor(found).expand(images, -1, -1)


ROWS: dict[str, TableRow] = {
    "hymenoptera": TableRow(
        "hymenoptera", "--model resnet18 --image-size 64 --epochs 20", predict_majority_class, "the more frequent class"
    ),
    "camvid": TableRow(
        "camvid_subset",
        "--task segmentation --model unet --encoder resnet18 --image-size 96 --epochs 20 --ignore-value 11",
        predict_majority_class, "the most frequent class everywhere",
    ),
    "roads": TableRow(
        "massachusetts_roads_tiles",
        "--task road_extraction --model linknet_mtl --encoder resnet18 --image-size 128 --epochs 30",
        predict_lines_everywhere, "lines everywhere",
    ),
    "points": TableRow(
        "pointcloud_mosd", "--task point_segmentation --model pointcnn_x1 --points 1024 --epochs 4",
        predict_majority_class, "one class everywhere",
    ),
    "bsds500": TableRow(
        "bsds500_subset", "--task edge_detection --model hed_bn --image-size 112 --epochs 14",
        predict_sobel_gradient, "Sobel's gradient", 0.01,
    ),
    "bccd": TableRow(
        "bccd", "--task detection --encoder resnet18 --image-size 160 --epochs 8",
        predict_boxes_on_a_grid, "boxes of the middle sizes on a grid",
    ),
    "nuclei": TableRow(
        "nuclei_subset",
        "--task instance_segmentation --encoder resnet18 --image-size 160 --epochs 10",
        predict_objects_on_a_grid, "objects of the middle size on a grid",
    ),
}  # fmt: skip


def make_job(row: TableRow, folder: Path, flags: str) -> Job:
    """Make the job that `footplate train` creates for the dataset in `folder`, the row's flags and `flags`."""
    arguments = [str(folder), "--recipe", "from-scratch", *shlex.split(row.flags), *shlex.split(flags)]
    job, found = validate(create_parser().parse_args(["train", *arguments], argparse.Namespace(unknown=[])))
    if job is None or errors(found):
        raise SystemExit("\n".join(problem.message for problem in found))
    return job


def load_batches(job: Job, task: Task, splits: Splits) -> Iterable[Batch | None]:
    """Return the batches of the validation split. None is not among them, because one rank has all samples."""
    spec = make_worker_spec(job, threads=usable_cores())
    strategy = STRATEGIES["single"](spec)
    return (
        DataLoaders(spec, strategy, task, splits, _Silent(), streams=RandomStreams(job.training.seed))
        .create_val_loader()
        .epoch(1)
    )


class _Silent:
    def send(self, event: object) -> None:
        pass


def evaluate_outputs(job: Job, task: Task, splits: Splits, outputs_of: Callable[[Batch], Tensor]) -> dict[str, float]:
    """Compute the validation metrics of the outputs that `outputs_of` returns for each batch."""
    dataset_info = DatasetInfo(splits.classes, splits.channels, lambda: splits.train.class_counts(len(splits.classes)))
    measures = task.create_objective(job, dataset_info).create_metric()
    with torch.no_grad():
        for batch in load_batches(job, task, splits):
            assert batch is not None
            measures.update(outputs_of(batch).float(), batch.targets)
    return measures.compute()


def train_row(forker: Forker, row: TableRow, job: Job, folder: Path) -> tuple[str, bool]:
    """Train a row's job. Return the printed line, and True if the model exceeds the baseline by the margin."""
    task = TASKS[job.task]
    formats = task.entry.annotations
    splits = task.prepare_splits(
        job, open_splits(job.data.dataset, val_fraction=job.data.val_fraction, seed=job.training.seed, kinds=formats)
    )
    model = task.build_model(job, len(splits.classes), splits.channels).eval()
    before = evaluate_outputs(job, task, splits, lambda batch: model(batch.inputs))
    trivial = evaluate_outputs(job, task, splits, lambda batch: row.trivial(batch, splits))
    start = time.monotonic()
    group = WorkerGroup(forker, job, folder, threads=usable_cores())
    if any(group.finish(7200)):
        raise SystemExit(group.logs() or str(group.messages[-3:]))
    minutes = (time.monotonic() - start) / 60
    measure, *others = task.entry.metrics
    best = max((validation.measures for validation in group.of(Validation)), key=lambda measures: measures[measure.id])
    met = best[measure.id] >= trivial[measure.id] + row.margin
    values = [f"{measures[measure.id]:.3f}" for measures in (before, best, trivial)]
    line = (
        f"| `{row.dataset}` | {job.model.name}, {task.get_image_size(job) or job.data.points} | {job.training.epochs} | {measure.title} "
        f"| {values[0]} | {values[1]} | {values[2]} ({row.trivial_name}) | {minutes:.1f} min |{'' if met else ' MISSED'}"
    )
    for other in others:
        line += f"\n  {other.title}: " + ", ".join(f"{measures[other.id]:.3f}" for measures in (before, best, trivial))
    return line, met


def main() -> int:
    options = make_parser(__doc__)
    options.add_argument("--datasets", type=Path, default=DATASETS)
    options.add_argument("--only", nargs="+", choices=tuple(ROWS), default=tuple(ROWS))
    options.add_argument("--flags", default="", help='more for `footplate train`, e.g. "--augmentation light"')
    chosen = options.parse_args()
    print(describe_environment())
    torch.set_num_threads(usable_cores())
    met = True
    with closing(Forker()) as forker, use_empty_home() as folder:
        for name in chosen.only:
            row = ROWS[name]
            if not (chosen.datasets / row.dataset).is_dir():
                print(f"{row.dataset} is missing and left out")
                continue
            job = make_job(row, chosen.datasets / row.dataset, chosen.flags)
            line, reached = train_row(forker, row, job, folder / name)
            met &= reached
            print(line, flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
