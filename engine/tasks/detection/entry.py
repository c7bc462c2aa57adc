"""Declaration of object detection: a box around every object, and the class of the object. Torch-free."""

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.weights import INCLUDED_ENCODER
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="detection",
        title="Object detection",
        annotations=("boxes",),
        metrics=(
            Measure("map", "mAP", higher_is_better=True, percent=True),
            Measure("ap50", "AP50", higher_is_better=True, percent=True),
            Measure("ap75", "AP75", higher_is_better=True, percent=True),
        ),
        defaults=(
            DefaultModel("fasterrcnn_resnet50_fpn_v2", gpu=True),
            DefaultModel("fasterrcnn", encoder=INCLUDED_ENCODER),
        ),
        fields=("encoder",),
        predicts="objects",
        augmentation="boxes",
        hub_task="object-detection",
    ),
    "engine.tasks.detection.task:Detection",
    position=60,
)
