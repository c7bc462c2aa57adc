"""Declaration of semantic segmentation: a class for every pixel. Torch-free."""

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.weights import INCLUDED_ENCODER
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="segmentation",
        title="Semantic segmentation",
        annotations=("masks",),
        metrics=(
            Measure("miou", "Mean IoU", higher_is_better=True, percent=True),
            Measure("mean_f1", "Mean F1", higher_is_better=True, percent=True),
            Measure("pixel_accuracy", "Pixel accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(
            DefaultModel("unet", "resnet50", gpu=True),
            DefaultModel("unet", INCLUDED_ENCODER),
        ),
        fields=("loss", "encoder", "class_weights", "ignore_value"),
        losses=("cross_entropy", "focal", "dice", "cross_entropy_dice"),
        predicts="pixels",
        augmentation="masks",
        hub_task="image-segmentation",
    ),
    "engine.tasks.segmentation.task:Segmentation",
    position=30,
)
