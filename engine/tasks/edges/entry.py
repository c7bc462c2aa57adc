"""Declaration of edge detection: the likelihood of a boundary at each pixel. Torch-free."""

from engine.contract.catalogue import AnnotationKind, DefaultModel, Measure, TaskEntry
from engine.contract.images import VARYING_SIZE_FIELDS
from engine.contract.weights import INCLUDED_ENCODER
from engine.data.formats.declarations import TaskDeclaration
from engine.tasks.edges.formats import FORMAT

TASK = TaskDeclaration(
    TaskEntry(
        id="edge_detection",
        title="Edge detection",
        annotations=("edges", "masks"),
        metrics=(
            Measure("ods", "ODS F-measure", higher_is_better=True, percent=True),
            Measure("ois", "OIS F-measure", higher_is_better=True, percent=True),
            Measure("ap", "Average precision", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("hed_encoder", encoder=INCLUDED_ENCODER),),
        fields=("encoder",),
        without=VARYING_SIZE_FIELDS,  # shrinking breaks lines that are one pixel wide
        predicts="lines",
        augmentation="edges",
        scores=1,
        hub_task="image-to-image",
    ),
    "engine.tasks.edges.task:EdgeDetection",
    position=50,
    formats=(FORMAT,),
    kinds={
        "edges": AnnotationKind("images with edges", "Choose a folder with images and edges, white on black."),
    },
)
