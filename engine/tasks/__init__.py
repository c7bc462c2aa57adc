"""The tasks that Footplate knows, by id."""

from __future__ import annotations

from engine.tasks.base import DatasetInfo, Objective, Task
from engine.tasks.classification import Classification
from engine.tasks.custom import Custom
from engine.tasks.detection import Detection
from engine.tasks.edge_detection import EdgeDetection
from engine.tasks.instance_segmentation import InstanceSegmentation
from engine.tasks.multilabel import MultiLabel
from engine.tasks.point_segmentation import PointSegmentation
from engine.tasks.road_extraction import RoadExtraction
from engine.tasks.segmentation import Segmentation

TASKS: dict[str, Task] = {
    task.entry.id: task
    for task in (
        Classification(),
        MultiLabel(),
        Segmentation(),
        RoadExtraction(),
        EdgeDetection(),
        Detection(),
        InstanceSegmentation(),
        PointSegmentation(),
        Custom(),
    )
}

__all__ = ["TASKS", "DatasetInfo", "Objective", "Task"]
