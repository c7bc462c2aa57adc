"""Declaration of point cloud segmentation: a class for every point. Torch-free."""

from engine.contract.catalogue import AnnotationKind, DefaultModel, Measure, TaskEntry
from engine.contract.images import VARYING_SIZE_FIELDS
from engine.data.formats.declarations import TaskDeclaration
from engine.tasks.points.formats import FORMAT

TASK = TaskDeclaration(
    TaskEntry(
        id="point_segmentation",
        title="Point cloud segmentation",
        annotations=("points",),
        metrics=(
            Measure("miou", "Mean IoU", higher_is_better=True, percent=True),
            Measure("mean_f1", "Mean F1", higher_is_better=True, percent=True),
            Measure("point_accuracy", "Point accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("pointcnn"),),
        fields=("points", "loss", "class_weights", "ignore_value"),
        losses=("cross_entropy", "focal", "dice", "cross_entropy_dice"),
        without=("image_size", *VARYING_SIZE_FIELDS, "transforms", "mirror", "picture_cache", "memory_format"),
        predicts="points",
    ),
    "engine.tasks.points.task:PointSegmentation",
    position=80,
    formats=(FORMAT,),
    kinds={
        "points": AnnotationKind(
            "point clouds", "Choose a folder of point clouds whose points have labels.", "cloud", "points"
        ),
    },
)
