"""Analysis of detected objects: average precision by object size, kinds of errors, and thresholds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import BoxErrors, ClassCurves, SizeName, SizePrecision
from engine.metrics.average_precision import (
    CORRECT,
    LEFT_OUT,
    THRESHOLDS,
    WRONG,
    Bools,
    Floats,
    Ints,
    assign,
    compute_average_precisions,
    compute_box_overlaps,
    convert_to_outcomes,
    iterate_classes,
)
from engine.metrics.base import Metric
from engine.metrics.detection_errors import (
    CLASS,
    COLUMNS,
    OUTCOME,
    SCORE,
    ImageErrors,
    compute_error_costs,
    find_errors,
)
from engine.metrics.label_curves import Counts, compute_threshold_rows, create_class_curves
from engine.tasks.analysis import TASK_METRIC, Analysis, EvaluatedMetrics, Intervals, SampleColumns
from engine.tasks.detection.objects import SCORE_THRESHOLD, Detections, read_detections, read_objects

SIZES: tuple[SizeName, ...] = get_args(SizeName)
AREAS = ((0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
"""COCO's ranges for the area of objects in pixels, inclusive (`areaRng` in pycocotools)."""


class Comparison(NamedTuple):
    """Detections and annotated objects in one image, and the overlaps between them.

    Attributes:
        detection_areas: Areas of the detections, [d], in pixels of the model's input.
        classes: Classes of the objects, [g].
        ignored: True for each object that counts neither as found nor as missed, such as a crowd, [g].
        areas: Areas of the objects, [g], in pixels of the model's input.
        overlaps: Overlap of each detection with each object, [d, g].
    """

    detections: Detections
    detection_areas: Floats
    classes: Ints
    ignored: Bools
    areas: Floats
    overlaps: Floats

    def find_errors(self) -> ImageErrors:
        """Return the kind of error of each detection, and the missed objects in the image."""
        classes, scores = self.detections.classes, self.detections.scores
        return find_errors(classes, scores, self.classes, self.ignored, self.overlaps)


class ObjectMetric(Metric):
    """Metric for detections, computed separately for small, medium and large objects.

    `counters` [2 + 3, C] hold, for each class, the number of objects, the number of missed objects, and the number of
    objects of each size in `SIZES`. `rows` has a row for each detection: the columns of `ImageErrors.rows`, followed
    for each size by the outcomes (CORRECT, WRONG or LEFT_OUT) at the ten IoU thresholds. The outcomes for a size leave
    out objects and detections of other sizes.
    """

    def __init__(self, classes: int, scale: float) -> None:
        self.counters = torch.zeros((2 + len(SIZES), classes), dtype=torch.float64)
        self.rows = torch.empty((0, COLUMNS + len(SIZES) * len(THRESHOLDS)), dtype=torch.float64)
        self._scale = scale  # size of the image file relative to the loaded image

    @abstractmethod
    def compare(self, detections: Detections, target: Tensor) -> Comparison:
        """Compare the detections in one image with its annotated objects."""

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a row for each prediction, and count the objects in each class: all, missed, and by size."""
        for output, target in zip(outputs.cpu(), targets.cpu(), strict=True):
            comparison = self.compare(read_detections(output), target)
            errors = comparison.find_errors()
            outcomes_by_size = [self._compute_outcomes(comparison, *limits) for limits in AREAS]
            self.add_rows(torch.from_numpy(np.column_stack([errors.rows, *outcomes_by_size])))
            is_counted = ~comparison.ignored
            areas = comparison.areas * self._scale**2  # in pixels of the file
            # Classes of the objects to count in each row of `counters`.
            classes_by_row = [comparison.classes[is_counted], errors.missed]
            classes_by_row += [comparison.classes[is_counted & (areas >= low) & (areas <= high)] for low, high in AREAS]
            class_counts = np.stack([np.bincount(each, minlength=self.counters.shape[1]) for each in classes_by_row])
            self.counters = self.counters + torch.from_numpy(class_counts.astype(np.float64))

    def compute(self) -> dict[str, float]:
        """Return the mean AP and AP50 over the classes by metric id, such as "ap_small" and "ap50_small".

        A range of object sizes ("small") has no metrics if no object is in it.
        """
        measures = {}
        for size, precisions in self.compute_precisions_by_size().items():
            with_objects = precisions[~np.isnan(precisions[:, 0])]
            if len(with_objects):
                measures[f"ap_{size}"] = float(with_objects.mean())
                measures[f"ap50_{size}"] = float(with_objects[:, 0].mean())
        return measures

    def compute_precisions_by_size(self) -> dict[SizeName, Floats]:
        """Return the average precision of each class at each IoU threshold, [C, 10], keyed by size.

        It is NaN for a class without objects of that size.
        """
        rows = self.rows.numpy()
        classes_and_scores, outcomes = rows[:, :2], np.split(rows[:, COLUMNS:], len(SIZES), axis=1)
        object_counts = self.counters.numpy()[2:]
        return {
            size: compute_average_precisions(np.concatenate([classes_and_scores, each], 1), counts)
            for size, each, counts in zip(SIZES, outcomes, object_counts, strict=True)
        }

    def _compute_outcomes(self, comparison: Comparison, low: float, high: float) -> Floats:
        """Return CORRECT, WRONG or LEFT_OUT for each detection at the ten IoU thresholds, [d, 10].

        Only objects and unmatched detections with an area from `low` to `high` in pixels count, like in `evaluateImg`
        of pycocotools. The rows are in the order of `find_errors`.
        """
        # In pixels of the file.
        areas, detection_areas = comparison.areas * self._scale**2, comparison.detection_areas * self._scale**2
        ignored = comparison.ignored | (areas < low) | (areas > high)
        rows = [np.empty((0, len(THRESHOLDS)))]
        found = comparison.detections
        for detections, objects in iterate_classes(found.classes, found.scores, comparison.classes):
            # Any number of detections may be assigned to an ignored object, but only one to an object of another size.
            assigned = assign(
                comparison.overlaps[np.ix_(detections, objects)], ignored[objects], comparison.ignored[objects]
            )
            outcomes = convert_to_outcomes(assigned, ignored[objects])
            has_other_size = (detection_areas[detections] < low) | (detection_areas[detections] > high)
            rows.append(np.where((outcomes == WRONG) & has_other_size[:, None], LEFT_OUT, outcomes))
        return np.concatenate(rows)


class BoxObjects(ObjectMetric):
    def compare(self, detections: Detections, target: Tensor) -> Comparison:
        """Compare detections with the true boxes by area and overlap."""
        objects = read_objects(target)
        areas, detection_areas = ((boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (objects.boxes, detections.boxes))
        overlaps = compute_box_overlaps(detections.boxes, objects.boxes, objects.ignored)
        return Comparison(detections, detection_areas, objects.classes, objects.ignored, areas, overlaps)


class ObjectAnalysis(Analysis):
    """Evaluation of detections: metrics of all objects and by their size, and the kinds of errors.

    Attributes:
        metric_type: Metric that compares detections with objects. By default, it compares their boxes.
    """

    entries = tuple(
        Measure(f"{name}_{size}", f"{title}, {size} objects", higher_is_better=True, percent=True)
        for name, title in (("ap", "AP"), ("ap50", "AP50"))
        for size in SIZES
    )
    depends_on_file_size = True
    metric_type: type[ObjectMetric] = BoxObjects

    def create_metrics(self, scale: float) -> dict[str, Metric]:
        return {TASK_METRIC: self.objective.create_metric(), "objects": self.metric_type(len(self.classes), scale)}

    def compute_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Return the classes, mean confidence and F1 score of the detections for each sample in a batch."""
        columns = SampleColumns(correct=[], true=[], predicted=[], confidence=[])
        compare = self.metric_type(len(self.classes), 1.0).compare  # it does not depend on the scale of 1.0
        for output, target in zip(outputs.cpu(), targets.cpu(), strict=True):
            comparison = compare(read_detections(output, SCORE_THRESHOLD), target)
            rows = comparison.find_errors().rows
            correct, wrong = (rows[:, OUTCOME] == CORRECT).sum(), (rows[:, OUTCOME] == WRONG).sum()
            object_classes = comparison.classes[~comparison.ignored]
            total = correct + wrong + len(object_classes)
            columns.correct.append(float(2 * correct / total) if total else 1.0)  # type: ignore[union-attr]
            columns.true.append(tuple(object_classes.tolist()))  # type: ignore[union-attr]
            columns.predicted.append(tuple(comparison.detections.classes.tolist()))  # type: ignore[union-attr]
            scores = comparison.detections.scores
            columns.confidence.append(float(scores.mean()) if len(scores) else 0.0)  # type: ignore[union-attr]
        return columns

    def compute_details(self, measured: EvaluatedMetrics, intervals: Intervals) -> dict[str, Any]:
        """Return the fields of the `Evaluation` about thresholds, kinds of errors, and object sizes, by field name."""
        metric = measured.metrics["objects"]
        rows = metric.rows.numpy()
        objects, missed, *objects_by_size = metric.counters.numpy()  # numbers of objects in each class
        counted_rows = rows[rows[:, OUTCOME] != LEFT_OUT]
        errors = compute_error_costs(rows[:, :COLUMNS], objects, missed)
        return {
            "thresholds": compute_threshold_rows(
                counted_rows[:, SCORE], counted_rows[:, OUTCOME] == CORRECT, float(objects.sum())
            ),
            "box_errors": tuple(
                BoxErrors(kind=kind, count=count, ap_loss=loss) for kind, (count, loss) in errors.items()
            ),
            "sizes": tuple(
                SizePrecision(
                    size=size,
                    objects=int(counts.sum()),
                    ap=intervals.measures.get(f"ap_{size}"),
                    ap50=intervals.measures.get(f"ap50_{size}"),
                )
                for size, counts in zip(SIZES, objects_by_size, strict=True)
            ),
        }

    def compute_curves(self, measured: EvaluatedMetrics, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return the precision-recall curve of each class at an IoU of 0.5."""
        metric = measured.metrics["objects"]
        rows, counts = metric.rows.numpy(), metric.counters.numpy()[0]
        # The first title with AP50 is that of the task's main overlap: "AP50" of boxes, or "Mask AP50".
        titles = (title for title in intervals.per_class if title.endswith("AP50"))
        precisions = intervals.per_class[next(titles)]
        all_curves = []
        for number, precision in enumerate(precisions):
            ranked = rows[(rows[:, CLASS] == number) & (rows[:, OUTCOME] != LEFT_OUT)]
            ranked = ranked[np.argsort(-ranked[:, SCORE], kind="stable")]
            true_positives = (ranked[:, OUTCOME] == CORRECT).cumsum().astype(np.float64)
            if not counts[number] or not len(ranked):
                all_curves.append(ClassCurves(class_index=number, positives=int(counts[number])))
                continue
            at_thresholds = Counts(ranked[:, SCORE], true_positives, np.arange(1, len(ranked) + 1) - true_positives)
            all_curves.append(create_class_curves(number, at_thresholds, int(counts[number]), precision))
        return tuple(all_curves)
