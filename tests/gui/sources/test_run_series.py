"""Class metrics and predictions of validations."""

from __future__ import annotations

import numpy as np

from engine.contract.events import ClassMeasures, Planned, Predicted
from gui.sources.run_data import RunData
from tests.gui.run.evaluated_run import CLASSES, CONFUSION, a_looked_run, events, iou
from tests.gui.sources.written_runs import job


def taken_in() -> RunData:
    data = RunData()
    for n, event in enumerate(events(job()), 1):
        event.n = n
        data.apply(event)
    return data


def plan(from_step: int) -> Planned:
    return Planned(
        epochs=4, from_step=from_step, steps_per_epoch=10, train_images=1, val_images=1, classes=CLASSES, image_size=8,
        parameters=1, trainable_parameters=1,
    )  # fmt: skip


def test_validations_keep_gaps_of_missing_classes() -> None:
    validation_details = taken_in().validation_details
    assert [figures.step for figures in validation_details.classes] == [10, 20, 30, 40]
    assert [received.step for received in validation_details.predicted] == [10, 20, 30, 40]
    first, second, third = validation_details.classes[1].measures["IoU"]
    assert (first, second) == iou(2)[:2]
    assert np.isnan(third)
    assert validation_details.classes[1].confusion.tolist() == [list(row) for row in CONFUSION]


def test_series_cut_after_checkpoint() -> None:
    data = taken_in()
    cuts = data.cuts
    data.apply(_numbered(plan(20), data))
    assert [figures.step for figures in data.validation_details.classes] == [10, 20]
    assert [received.step for received in data.validation_details.predicted] == [10, 20]
    assert data.cuts == cuts + 1


def test_series_repeated_validation_replaces_earlier() -> None:
    data = taken_in()
    data.apply(_numbered(ClassMeasures(epoch=4, step=40, measures={"IoU": (0.5, 0.5, 0.5)}), data))
    data.apply(_numbered(Predicted(epoch=4, step=40, samples=()), data))
    assert [figures.step for figures in data.validation_details.classes] == [10, 20, 30, 40]
    assert data.validation_details.classes[-1].measures["IoU"].tolist() == [0.5] * 3
    assert data.validation_details.classes[-1].confusion is None
    assert [len(received.samples) for received in data.validation_details.predicted] == [3, 3, 3, 0]


def test_series_of_past_run_from_log() -> None:
    data = RunData()
    data.apply_all(list(a_looked_run().events()))
    assert [received.samples for received in data.validation_details.predicted] == [
        received.samples for received in taken_in().validation_details.predicted
    ]
    assert [figures.step for figures in data.validation_details.classes] == [10, 20, 30, 40]


def _numbered(event: ClassMeasures | Predicted | Planned, data: RunData) -> ClassMeasures | Predicted | Planned:
    event.n = data.last_n + 1
    return event
