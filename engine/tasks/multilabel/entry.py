"""Declaration of multi-label classification: any number of labels per image. Torch-free."""

from engine.contract.catalogue import Measure, TaskEntry
from engine.data.formats.declarations import TaskDeclaration
from engine.tasks.classification.entry import TASK as CLASSIFICATION

TASK = TaskDeclaration(
    TaskEntry(
        id="multilabel",
        title="Multi-label classification",
        annotations=("labels",),
        metrics=(
            Measure("map", "Mean average precision", higher_is_better=True, percent=True),
            Measure("mean_f1", "Mean F1", higher_is_better=True, percent=True),
            Measure("accuracy", "Sample accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=CLASSIFICATION.entry.defaults,
        fields=tuple(name for name in CLASSIFICATION.entry.fields if name != "loss"),
        models="classification",
        predicts="labels",
        augmentation="images",
        hub_task="image-classification",
    ),
    "engine.tasks.multilabel.task:MultiLabel",
    position=20,
)
