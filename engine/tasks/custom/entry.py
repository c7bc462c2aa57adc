"""Declaration of the custom task, which is defined by a user's Python file. Torch-free."""

from engine.contract.catalogue import Measure, TaskEntry
from engine.data.formats.declarations import TaskDeclaration

TASK = TaskDeclaration(
    TaskEntry(
        id="custom",
        title="Your own task",
        annotations=("files",),
        metrics=(Measure("loss", "Validation loss", higher_is_better=False),),
        defaults=(),
        file=True,
        augmentation="masks",
    ),
    "engine.tasks.custom.task:Custom",
    position=90,
)
