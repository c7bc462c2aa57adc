"""Declaration of image classification: one class per image. Torch-free."""

from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="classification",
        title="Image classification",
        annotations=("classes",),
        metrics=(
            Measure("top1", "Top-1 accuracy", higher_is_better=True, percent=True),
            Measure("top5", "Top-5 accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("resnet50", gpu=True), DefaultModel("timm:tf_efficientnet_lite0")),
        fields=(
            "loss",
            "class_weights",
            "label_smoothing",
            "mixup",
            "cutmix",
            "oversample",
            "val_crop",
            "dropout",
            "stochastic_depth",
            "fold",
        ),
        losses=("cross_entropy", "bce"),
        predicts="class",
        augmentation="images",
        hub_task="image-classification",
    ),
    "engine.tasks.classification.task:Classification",
    position=10,
)
