"""Declaration of instance segmentation: the pixels and class of every object. Torch-free."""

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.weights import INCLUDED_ENCODER
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="instance_segmentation",
        title="Instance segmentation",
        annotations=("instances",),
        metrics=(
            Measure("mask_map", "Mask mAP", higher_is_better=True, percent=True),
            Measure("mask_ap50", "Mask AP50", higher_is_better=True, percent=True),
            Measure("mask_ap75", "Mask AP75", higher_is_better=True, percent=True),
            Measure("box_map", "Box mAP", higher_is_better=True, percent=True),
            Measure("box_ap50", "Box AP50", higher_is_better=True, percent=True),
            Measure("box_ap75", "Box AP75", higher_is_better=True, percent=True),
        ),
        defaults=(
            DefaultModel("maskrcnn_resnet50_fpn_v2", gpu=True),
            DefaultModel("maskrcnn", encoder=INCLUDED_ENCODER),
        ),
        fields=("encoder",),
        predicts="objects",
        augmentation="masks",
        hub_task="image-segmentation",
    ),
    "engine.tasks.instances.task:InstanceSegmentation",
    position=70,
)
