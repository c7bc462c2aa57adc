"""The tasks, by id: Footplate's own, and those of plug-ins."""

from __future__ import annotations

from engine.system.plugins import Registry, Unusable
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


def _accept(name: str, loaded: object) -> Task:
    if not (isinstance(loaded, type) and issubclass(loaded, Task)):
        raise Unusable(f"it is a {type(loaded).__name__}, not a subclass of Task of engine.tasks")
    if loaded.entry.id != name:
        raise Unusable(f"the id of its entry is “{loaded.entry.id}”")
    return loaded()


_OWN: dict[str, Task] = {
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
TASKS: Registry[Task] = Registry("footplate.tasks", _OWN, _accept)

__all__ = ["TASKS", "DatasetInfo", "Objective", "Task"]
