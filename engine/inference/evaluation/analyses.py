"""Which analysis belongs to what a model learns."""

from __future__ import annotations

from collections.abc import Sequence

from engine.inference.evaluation.analysis import Analysis
from engine.inference.evaluation.label_analysis import ClassAnalysis, MultiLabelAnalysis
from engine.inference.evaluation.object_analysis import ObjectAnalysis, OutlineAnalysis
from engine.inference.evaluation.pixel_analysis import EdgeAnalysis, PixelAnalysis, RoadAnalysis
from engine.tasks.base import Objective
from engine.tasks.classification import ClassOfImage
from engine.tasks.detection import BoxesOfImage
from engine.tasks.edge_detection import EdgesOfImage
from engine.tasks.instance_segmentation import MasksOfImage
from engine.tasks.multilabel import LabelsOfImage
from engine.tasks.road_extraction import LinesAndDirections
from engine.tasks.segmentation import ClassOfPixel

ANALYSES: dict[type[Objective], type[Analysis]] = {
    ClassOfImage: ClassAnalysis,
    LabelsOfImage: MultiLabelAnalysis,
    BoxesOfImage: ObjectAnalysis,
    MasksOfImage: OutlineAnalysis,
    ClassOfPixel: PixelAnalysis,
    LinesAndDirections: RoadAnalysis,
    EdgesOfImage: EdgeAnalysis,
}
"""By the type of the objective itself; what learns something else is measured by its own metric alone."""


def analysis_of(objective: Objective, classes: Sequence[str]) -> Analysis:
    """What is told of models that learn `objective`."""
    return ANALYSES.get(type(objective), Analysis)(objective, classes)
