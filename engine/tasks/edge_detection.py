"""Edge detection: how likely each pixel is on a boundary that people would draw."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.job import Job
from engine.data.datasets.edge_images import EdgesOfMasks
from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import Splits
from engine.data.decoding.edges import AGREED, FULL, MAX_ANNOTATORS, OUTSIDE
from engine.data.decoding.idx import Bytes
from engine.data.formats.edges import CLASSES
from engine.data.transforms.device_transforms import Statistics
from engine.metrics.base import Metric
from engine.metrics.boundaries import (
    DRAWN,
    THRESHOLDS,
    Floats,
    best_row,
    count,
    recall_and_precision,
    score,
    thin_maxima,
)
from engine.metrics.boundaries import (
    Scores as BoundaryScores,
)
from engine.models import edge_models, encoders, registry
from engine.models.base import ModelInfo
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.predictions import LineScores, Scores

_COUNTS = len(THRESHOLDS) * 4


class EdgeMetric(Metric):
    """`counters`: the sum of the losses and the number of images, the counts of `boundaries.count` of all images at all
    thresholds, and those of each image at its own best threshold.
    """

    def __init__(self, objective: EdgesOfImage) -> None:
        self.counters = torch.zeros(2 + _COUNTS + 4, dtype=torch.float64)
        self._objective = objective

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        if not len(targets):
            return
        losses = self._objective.loss(outputs, targets)
        likely, drawn = outputs[:, -1].float().sigmoid().cpu().numpy(), targets.to(torch.uint8).cpu().numpy()
        counts, at_best = np.zeros((len(THRESHOLDS), 4), np.int64), np.zeros(4, np.int64)
        for found, (share, bits) in zip(likely, drawn, strict=True):
            region = _inside(share)
            layers = [(bits[region] >> number & 1).astype(bool) for number in range(MAX_ANNOTATORS)]
            thin = np.where(share[region] == OUTSIDE, 0, thin_maxima(found[region]))
            of_image = count(thin, [layer for layer in layers if layer.any()])
            counts += of_image
            at_best += best_row(of_image)
        sums = np.concatenate([[float(losses.double().sum()), len(losses)], counts.ravel(), at_best])
        self.counters = self.counters.to(outputs.device) + torch.from_numpy(sums).to(outputs.device)

    def compute(self) -> dict[str, float]:
        loss, images = self.counters[:2].tolist()
        if not images:
            return {}
        scores = self.scores()
        return {"ods": scores.ods, "ois": scores.ois, "ap": scores.ap, "loss": loss / images}

    def scores(self) -> BoundaryScores:
        """The measures of all images."""
        return score(self._counts, self.counters[2 + _COUNTS :].cpu().numpy())

    def curve(self) -> tuple[Floats, Floats]:
        """Recall and precision of all images at each of `THRESHOLDS`."""
        return recall_and_precision(self._counts)

    @property
    def drawn(self) -> int:
        """How many pixels were drawn, by all annotators."""
        return int(self._counts[0, DRAWN])

    @property
    def _counts(self) -> Floats:
        counts: Floats = self.counters[2 : 2 + _COUNTS].cpu().numpy().reshape(-1, 4)
        return counts


def _inside(share: Bytes) -> tuple[slice, slice]:
    """The rows and columns of a square [s, s] that the image takes."""
    inside = share != OUTSIDE
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not len(rows):
        return slice(0, 0), slice(0, 0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


class EdgeDetection(Task):
    entry: ClassVar[TaskEntry] = TaskEntry(
        id="edge_detection",
        title="Edge detection",
        annotations=("edges", "masks"),
        measures=(
            Measure("ods", "ODS F-measure", higher_is_better=True, percent=True),
            Measure("ois", "OIS F-measure", higher_is_better=True, percent=True),
            Measure("ap", "Average precision", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("hed_encoder", encoder=encoders.INCLUDED),),
        fields=("encoder",),
        without=("progressive_from",),  # lines that are one pixel wide break as they are made smaller
    )

    def model_names(self) -> tuple[str, ...]:
        return edge_models.names()

    def model_info(self, model: str) -> ModelInfo:
        return edge_models.model_info(model)

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        return edge_models.build(job, channels, self.image_size(job))

    def image_size(self, job: Job) -> int:
        return registry.image_size(job, edge_models.IMAGE_SIZE)

    def normalisation(self, job: Job, channels: int) -> Statistics:
        """Return the statistics that the model's weights expect; images of other bands take the mean over the colors."""
        mean, std = edge_models.statistics(job)
        return (mean, std) if channels == 3 else ((sum(mean) / 3,) * channels, (sum(std) / 3,) * channels)

    def prepared(self, job: Job, splits: Splits) -> Splits:
        """Of masks the edges that are in them."""
        if not isinstance(splits.train, MaskedImages):
            return splits
        return splits.with_each(lambda split: EdgesOfMasks(split, len(splits.classes)), classes=CLASSES)

    def objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        if job.model in ("bdcn", "bdcn_bn"):
            return EdgesOfImage(side=0.5, fused=1.1, balance=1.1)
        return EdgesOfImage()


class EdgesOfImage(Objective):
    """The logits of one or more maps of edges [n, maps, h, w], of which the last counts and all are learnt. Targets
    are int64 [n, 2, h, w], as `decoding.edges.lay_edges` makes them.

    A map's loss is the class-balanced cross entropy of Xie and Tu 2015, equation 2: edges count by the share of
    pixels that are none, and the others by the share of edges times `balance` (lambda in He et al. 2019, section
    3.3). Pixels that some annotators drew but not enough of them are left out. Both papers sum over pixels; here the
    sum is divided by that of the weights, so that the loss, and the learning rate that suits it, do not depend on the
    size of the images. `side` and `fused` are the weights of the maps in the sum over them: 1 in HED, and 0.5 and 1.1
    in BDCN (He et al., section 4.2).
    """

    entry = EdgeDetection.entry

    def __init__(self, *, side: float = 1.0, fused: float = 1.0, balance: float = 1.0) -> None:
        self._side = side
        self._fused = fused
        self._balance = balance

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        share = targets[:, :1]
        edge = (share > AGREED * FULL) & (share != OUTSIDE)
        none = share == 0
        edges, others = (kind.sum((1, 2, 3), keepdim=True).float() for kind in (edge, none))
        weights = edge * others + none * (self._balance * edges)
        values = functional.binary_cross_entropy_with_logits(
            outputs.float(), edge.float().expand(outputs.shape), reduction="none"
        )
        of_maps = (values * weights).sum((2, 3)) / weights.sum((2, 3)).clamp(min=1)
        return self._side * of_maps[:, :-1].sum(1) + self._fused * of_maps[:, -1]

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return None

    def metric(self) -> Metric:
        return EdgeMetric(self)

    def blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), 2, *inputs.shape[-2:]), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        """The share of the annotators who drew each pixel, white on black."""
        share = target[0].numpy()
        return _shown(np.where(share == OUTSIDE, 0, share / FULL))

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """How likely each pixel is an edge, white on black."""
        return _shown(output[-1].float().sigmoid().numpy())

    def scores(self, output: Tensor, size: int) -> Scores:
        """Of the last map alone, which counts."""
        return LineScores(output[-1:].float().sigmoid())


def _shown(share: np.ndarray) -> Visualization:
    levels = np.rint(share * 255).astype(np.uint8)
    return Visualization(np.repeat(levels[:, :, None], 3, 2))
