"""Run whose log contains class metrics and sample predictions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import structs
from PySide6.QtGui import QColor, QImage

from engine.contract.events import AnyEvent, ClassMeasures, Planned, Predicted, PredictedSample, StepMetrics, Validation
from engine.contract.images import LegendEntry
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run
from tests.gui.sources.written_runs import job, list_run_events, write

CLASSES = ("ash", "birch", "cedar")
LEGEND = tuple(LegendEntry(name, color) for name, color in zip(CLASSES, ("", "#ff0000", "#00ff00"), strict=True))
SAMPLES = 3
CONFUSION = ((6, 2, 0), (1, 9, 0), (0, 0, 0))


def iou(epoch: int) -> tuple[float | None, ...]:
    return (0.1 * epoch, 0.2 * epoch, None)


def make_details(validation: Validation) -> tuple[ClassMeasures, Predicted]:
    """Return two events that belong to a validation: its class metrics, and its predictions of `SAMPLES` samples."""
    epoch, step, time = validation.epoch, validation.step, validation.time
    predicted = tuple(
        PredictedSample(
            name=f"val/{index}.png",
            truth_png=f"predictions/truth/{index:03}.png",
            prediction_png=f"predictions/{step:06}/{index:03}.png",
            truth_words="ash",
            prediction_words=f"birch {epoch}%",
            legend=(index,),
        )
        for index in range(SAMPLES)
    )
    return (
        ClassMeasures(
            time=time, epoch=epoch, step=step, measures={"IoU": iou(epoch), "F1": iou(epoch)}, confusion=CONFUSION
        ),
        Predicted(time=time, epoch=epoch, step=step, samples=predicted, legend=LEGEND),
    )


def events(chosen: Job, steps: int = 40, *, accuracy: bool = True, measures: bool = True) -> Iterator[AnyEvent]:
    """Yield the events of a completed run of the job `chosen`, with class metrics and predictions.

    Without `accuracy`, steps report no accuracy. Without `measures`, the loss is the only validation metric.
    """
    for event in list_run_events(chosen, steps, "completed"):
        if isinstance(event, Planned):
            yield structs.replace(event, classes=CLASSES)
        elif isinstance(event, StepMetrics) and not accuracy:
            yield structs.replace(event, accuracy=None)
        elif isinstance(event, Validation):
            yield event if measures else structs.replace(event, measures={"loss": event.measures["loss"]})
            yield from make_details(event)
        else:
            yield event


def make_predicted_run(**changes: object) -> RunFolder:
    """Create a run folder with the log from `events`, and draw the images of its predictions.

    The images have 8 x 6 pixels. Ground truths are green and predictions are red. `changes` are fields of the job.
    """
    chosen = job(**changes)
    run = create_run(chosen)
    logged = list(events(chosen))
    write(run.events_file, logged)
    for event in logged:
        for sample in event.samples if isinstance(event, Predicted) else ():
            draw(run.path / sample.truth_png, "#00ff00")
            draw(run.path / sample.prediction_png, "#ff0000")
    return run


def draw(path: Path, color: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = QImage(8, 6, QImage.Format.Format_RGB32)
    image.fill(QColor(color))
    assert image.save(str(path))
