"""Declaration of road extraction: the pixels and directions of lines. Torch-free."""

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.weights import INCLUDED_ENCODER
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="road_extraction",
        title="Roads and lines",
        annotations=("masks",),
        metrics=(
            Measure("iou", "IoU", higher_is_better=True, percent=True),
            Measure("relaxed_iou", "Relaxed IoU", higher_is_better=True, percent=True),
            Measure("f1", "F1", higher_is_better=True, percent=True),
            Measure("orientation", "Direction accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("linknet_mtl", encoder=INCLUDED_ENCODER),),
        fields=("encoder", "ignore_value"),
        classes=2,
        predicts="lines",
        augmentation="lines",
        scores=39,  # scores of background and line, then of 36 directions and no direction
        hub_task="image-segmentation",
    ),
    "engine.tasks.roads.task:RoadExtraction",
    position=40,
)
