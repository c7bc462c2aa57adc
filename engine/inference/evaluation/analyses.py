"""Analysis of a model by its objective."""

from __future__ import annotations

from collections.abc import Sequence

from engine.inference.evaluation.label_analysis import ClassAnalysis, MultiLabelAnalysis
from engine.inference.evaluation.object_analysis import ObjectAnalysis, OutlineAnalysis
from engine.tasks.analysis import Analysis
from engine.tasks.base import Objective
from engine.tasks.classification.task import ClassOfImage
from engine.tasks.detection.task import BoxesOfImage
from engine.tasks.instances.task import MasksOfImage
from engine.tasks.multilabel.task import LabelsOfImage

_ANALYSES: dict[type[Objective], type[Analysis]] = {
    ClassOfImage: ClassAnalysis,
    LabelsOfImage: MultiLabelAnalysis,
    BoxesOfImage: ObjectAnalysis,
    MasksOfImage: OutlineAnalysis,
}
"""Analyses of labels and objects, which stand on the thresholds and curves of this package."""


def analysis_of(objective: Objective, classes: Sequence[str]) -> Analysis:
    """Return the analysis of models that learn `objective`."""
    known = _ANALYSES.get(type(objective))
    return known(objective, classes) if known is not None else objective.analysis(classes)
