"""What is said of a run at its end, by made histories of each kind and by noise."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract.catalogue import load_catalogue
from engine.contract.events import ClassMeasures, Outcome, Planned, StepMetrics, Validation, Verdict
from engine.contract.job import FIELDS, Job, job_from_values
from engine.supervisor.history import History
from engine.supervisor.verdict import ENOUGH, verdict

STEPS = 10


def plan(classes: int = 10, from_step: int = 0, val: int = 1000) -> Planned:
    return Planned(
        epochs=20, from_step=from_step, steps_per_epoch=STEPS, train_images=320, val_images=val, image_size=28,
        classes=tuple(f"class {number}" for number in range(classes)), parameters=1, trainable_parameters=1,
    )  # fmt: skip


def epoch(history: History, number: int, loss: float, accuracy: float | None, measures: dict[str, float]) -> None:
    for step in ((number - 1) * STEPS + STEPS // 2, number * STEPS):
        history.take(
            StepMetrics(
                epoch=number, step=step, loss=loss, accuracy=accuracy, learning_rate=0.01, images_per_second=1,
                data_wait_s=0, compute_s=0,
            )
        )  # fmt: skip
    history.take(Validation(epoch=number, step=number * STEPS, measures=measures, images=1000, seconds=1))


def of(
    losses: list[float], trained: list[float], *, top1: list[float] | None = None, accuracy: float | None = 0.9,
    outcome: Outcome = "completed", classes: int = 10, **fields: Any,
) -> Verdict | None:  # fmt: skip
    """The verdict on a classifier with these validation and training losses."""
    history = History()
    history.take(plan(classes))
    for number, (loss, training) in enumerate(zip(losses, trained, strict=True), 1):
        right = top1[number - 1] if top1 is not None else 1 - loss / 10
        epoch(history, number, training, accuracy, {"top1": right, "loss": loss})
    return verdict(history, Job(**({"epochs": len(losses)} | fields)), outcome)


def decaying(epochs: int, keeps: float = 0.8, floor: float = 0.3) -> list[float]:
    return [floor + 2 * keeps**number for number in range(epochs)]


def test_that_a_loss_that_still_falls_asks_for_more_epochs() -> None:
    losses = decaying(12)
    found = of(losses, losses)
    assert found is not None
    assert found.code == "falling"
    more = int(found.figures["epochs_more"])
    assert found.sentence == f"Validation loss was still falling by 9 % per epoch: train for {more} more epochs."
    assert found.changes == {"epochs": 12 + more}
    after = decaying(12 + more + 1)
    assert 1 - after[-1] / after[-2] < 0.02, "then there is little left to gain"
    assert 1 - after[11] / after[10] > 0.05


def test_that_more_epochs_are_at_most_as_many_as_there_were() -> None:
    losses = [1 - 0.1 * number for number in range(6)]
    found = of(losses, losses)
    assert found is not None
    assert found.changes == {"epochs": 12}


def test_that_a_loss_that_falls_every_time_falls_however_unevenly() -> None:
    found = of([2.203, 1.93, 1.351, 1.258, 1.151], [2.28, 2.1, 1.67, 1.21, 1.2])
    assert found is not None
    assert found.sentence == "Validation loss was still falling by 7 % per epoch: train for 3 more epochs."


def test_that_a_stopped_run_that_still_falls_is_to_be_resumed() -> None:
    found = of(decaying(6), decaying(6), outcome="stopped", epochs=20)
    assert found is not None
    assert found.code == "falling"
    assert found.sentence.endswith("when the run was stopped after 6 of 20 epochs: resume the run.")
    assert found.changes == {}


def test_that_a_run_of_the_most_epochs_is_not_to_be_trained_further() -> None:
    found = of(decaying(6), decaying(6), epochs=100_000)
    assert found is not None
    assert found.sentence.endswith("after 100,000 epochs, the maximum for a run.")
    assert found.changes == {}


OVERFITTED = [1.0, 0.7, 0.5, 0.45, 0.5, 0.56, 0.6, 0.66], [1.0, 0.6, 0.4, 0.3, 0.2, 0.15, 0.1, 0.05]


def test_that_overfitting_is_told_from_its_epoch_on_with_its_figures() -> None:
    found = of(*OVERFITTED)
    assert found is not None
    assert found.code == "overfitted"
    assert found.sentence == (
        "Overfitted since epoch 4: validation loss rose from 0.45 to 0.607 while the training loss fell from 0.3 to 0.05. "
        "Set augmentation to light."
    )
    assert found.changes == {"augmentation": "light"}


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"augmentation": "light"}, {"augmentation": "medium"}),
        ({"augmentation": "medium"}, {"augmentation": "strong"}),
        ({"augmentation": "strong"}, {"label_smoothing": 0.1, "weight_decay": 0.0005}),
        ({"augmentation": "strong", "label_smoothing": 0.1}, {"weight_decay": 0.0005}),
        ({"augmentation": "own", "label_smoothing": 0.1, "weight_decay": 0.001}, {"epochs": 4}),
        (
            {"augmentation": "strong", "optimizer": "adamw", "weight_decay": 0.0},
            {"label_smoothing": 0.1, "weight_decay": 0.01},
        ),
    ],
)
def test_that_what_helps_against_overfitting_is_what_the_job_lacks(
    fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    found = of(*OVERFITTED, **fields)
    assert found is not None
    assert found.changes == pytest.approx(changes) if "augmentation" not in changes else found.changes == changes


def test_that_a_classifier_that_goes_on_to_improve_as_its_loss_rises_is_not_overfitted() -> None:
    found = of(*OVERFITTED, top1=[0.5, 0.6, 0.7, 0.75, 0.8, 0.83, 0.86, 0.88])
    assert found is None or found.code != "overfitted"


def test_that_overfitting_is_told_though_the_accuracy_stays_the_same_to_the_last_digit() -> None:
    found = of(*OVERFITTED, top1=[0.5, 0.6, 0.7, 0.76, 0.76, 0.76, 0.76, 0.76])
    assert found is not None
    assert found.code == "overfitted"


def test_that_a_loss_that_rises_with_the_training_loss_is_not_overfitting() -> None:
    losses, _ = OVERFITTED
    found = of(losses, losses)
    assert found is None or found.code != "overfitted"


def flat(rate: float, losses: list[float], **fields: Any) -> Verdict | None:
    return of(losses, losses, top1=[0.1] * len(losses), accuracy=0.1, learning_rate=rate, **fields)


def test_that_a_rate_that_moves_nothing_is_too_low() -> None:
    found = flat(1e-8, [2.31, 2.309, 2.308, 2.307])
    assert found is not None
    assert found.code == "not_fitted"
    assert found.sentence == (
        "The training loss went from 2.31 to 2.307 and nothing was learned: the learning rate of 1e-08 is too low. Try 0.01."
    )
    assert found.changes == {"learning_rate": 0.01}


@pytest.mark.parametrize("losses", [[2.5, 9.0, 4.0, 6.0], [80.0, 5.0, 2.4, 2.3]])
def test_that_a_rate_at_which_the_loss_jumps_is_too_high(losses: list[float]) -> None:
    found = flat(5.0, losses)
    assert found is not None
    assert found.code == "not_fitted"
    assert "too high" in found.sentence
    assert found.changes == {"learning_rate": 0.01}


@pytest.mark.parametrize(("losses", "rate"), [([2.31, 2.308, 2.306], 0.1), ([2.3, 2.9, 3.4], 0.001)])
def test_that_of_a_usual_rate_the_training_loss_decides(losses: list[float], rate: float) -> None:
    found = flat(0.01, losses)
    assert found is not None
    assert found.changes == pytest.approx({"learning_rate": rate})


def test_that_a_head_that_learns_nothing_alone_has_all_layers_trained() -> None:
    found = flat(0.01, [2.31, 2.308, 2.306], freeze_epochs=3)
    assert found is not None
    assert found.changes == {"freeze_epochs": 0}


def test_that_what_is_learned_of_wrong_labels_is_of_no_use() -> None:
    found = of([2.3, 2.6, 3.0, 3.5], [2.0, 1.0, 0.3, 0.1], top1=[0.1, 0.11, 0.09, 0.1], accuracy=0.98)
    assert found is not None
    assert found.code == "not_generalised"
    assert "(98 % correct)" in found.sentence
    assert "Check that the labels" in found.sentence
    assert found.changes == {}


def test_that_a_task_without_a_level_of_chance_has_a_bad_rate_where_nothing_moves() -> None:
    history = History()
    history.take(plan(3))
    for number in range(1, 5):
        epoch(history, number, 3.2, None, {"miou": 0.3, "mean_f1": 0.3, "pixel_accuracy": 0.7, "loss": 3.2})
    found = verdict(history, Job(task="segmentation", model="unet", learning_rate=1e-8, epochs=4), "completed")
    assert found is not None
    assert found.code == "not_fitted"
    usual = verdict(history, Job(task="segmentation", model="unet", epochs=4), "completed")
    assert usual is None, "it may have begun with weights that were trained before"


def detected(values: list[float]) -> Verdict | None:
    history = History()
    history.take(plan(3))
    for number, value in enumerate(values, 1):
        epoch(history, number, 2 * 0.8**number, None, {"map": value, "ap50": value, "ap75": value})
    return verdict(history, Job(task="detection", model="fasterrcnn", epochs=len(values)), "completed")


def test_that_a_task_without_a_validation_loss_is_judged_by_its_best_measure() -> None:
    rising, over, rest = (
        detected(values)
        for values in (
            [0.01, 0.05, 0.1, 0.15, 0.19],
            [0.1, 0.3, 0.4, 0.36, 0.33, 0.3],
            [0.1, 0.3, 0.4, 0.401, 0.4, 0.402, 0.401, 0.4],
        )
    )
    assert rising is not None
    assert rising.sentence.startswith("mAP was still rising by 24 % per epoch: train for ")
    assert over is not None
    assert over.sentence.startswith("Overfitted since epoch 3: mAP fell from 40.0 % to 33.0 % while")
    assert rest is not None
    assert rest.sentence == "Converged: the best epoch was 6 of 8."


def test_that_a_run_at_rest_has_converged() -> None:
    losses = [1.0, 0.6, 0.45, 0.41, 0.405, 0.404, 0.403, 0.404]
    found = of(losses, losses)
    assert found is not None
    assert found.sentence == "Converged: the best epoch was 7 of 8."
    assert of(losses, losses, outcome="stopped", epochs=20) is None, "its schedule had not come to its end"


AT_REST = [1.0, 0.6, 0.45, 0.41, 0.405, 0.404]


def recalled(
    recalls: list[float], counts: list[int], *, losses: list[float] = AT_REST, **fields: Any
) -> Verdict | None:
    """The verdict on a run with these classes; what is not found is taken for the first class."""
    history = History()
    history.take(plan(len(counts)))
    for number, loss in enumerate(losses, 1):
        epoch(history, number, loss, 0.9, {"top1": 0.8, "loss": loss})
    rows = []
    for number, (recall, count) in enumerate(zip(recalls, counts, strict=True)):
        row = [0] * len(counts)
        row[number] += round(recall * count)
        row[0] += count - round(recall * count)
        rows.append(tuple(row))
    history.take(ClassMeasures(epoch=6, step=6 * STEPS, measures={"Recall": tuple(recalls)}, confusion=tuple(rows)))
    return verdict(history, Job(epochs=6, **fields), "completed")


def test_that_rare_classes_that_are_hardly_found_are_named_and_given_more_often() -> None:
    recalls, counts = [0.9, 0.9, 0.85, 0.1, 0.0], [100, 100, 100, 20, 10]
    found = recalled(recalls, counts)
    assert found is not None
    assert found.sentence == (
        "“class 4” (recall 0 %) and “class 3” (recall 10 %) are rare and rarely recognized. Turn on “Oversample rare classes”."
    )
    assert found.changes == {"oversample": True}
    again = recalled(recalls, counts, oversample=True)
    assert again is not None
    assert again.changes == {}
    assert again.sentence.endswith("Add more images of them.")


def test_that_a_class_that_is_never_predicted_is_to_be_looked_at() -> None:
    found = recalled([0.9, 0.9, 0.8, 0.0], [100, 100, 100, 100])
    assert found is not None
    assert found.sentence == "“class 3” is never predicted, although not rare: check its images and labels."


def test_that_classes_that_are_not_found_yet_are_left_to_further_epochs() -> None:
    found = recalled([0.9, 0.9, 0.8, 0.0], [100, 100, 100, 100], losses=[1.0, 0.9, 0.99, 0.8, 0.78, 0.75])
    assert found is None


def test_that_a_class_of_few_images_is_not_called_weak_by_chance() -> None:
    found = recalled([0.7, 0.7, 0.7, 0.3], [100, 100, 100, 3])
    assert found is not None
    assert found.code == "converged"


@pytest.mark.parametrize("outcome", ["failed", "paused"])
def test_that_nothing_is_said_of_a_run_that_did_not_come_to_its_end(outcome: Outcome) -> None:
    assert of(*OVERFITTED, outcome=outcome) is None


def test_that_nothing_is_said_after_too_few_epochs() -> None:
    for epochs in range(ENOUGH):
        losses = decaying(epochs)
        assert of(losses, losses) is None


def test_that_what_is_made_again_after_a_fault_counts_once() -> None:
    history = History()
    history.take(plan())
    for number in range(1, 5):
        epoch(history, number, 5.0, 0.1, {"top1": 0.1, "loss": 5.0})
    history.take(plan(from_step=2 * STEPS))
    assert sorted(history.epochs) == [1, 2]
    epoch(history, 3, 1.0, 0.5, {"top1": 0.5, "loss": 1.0})
    assert history.epochs[3].loss == 1.0
    assert history.epochs[3].measures["loss"] == 1.0


@pytest.mark.parametrize("spread", [0.002, 0.02, 0.1])
def test_that_noise_alone_is_seldom_taken_for_a_trend(spread: float) -> None:
    wrong = 0
    for seed in range(200):
        chance = random.Random(seed)
        losses = [0.5 * (1 + chance.gauss(0, spread)) for _ in range(12)]
        found = of(losses, [0.5 * 0.9**number for number in range(12)], top1=[0.8] * 12)
        wrong += found is not None and found.code != "converged"
    assert wrong <= 6, "three in a hundred at most"


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 10) | st.sampled_from([0.0, 0.5, 1.0])
TASKS = [task for task in load_catalogue().tasks if not task.file]


def test_that_the_mean_of_huge_losses_is_finite() -> None:
    history = History()
    epoch(history, 1, -1.7e308, None, {})
    assert history.epochs[1].loss == pytest.approx(-1.7e308)


@given(data=st.data())
@settings(max_examples=150)
def test_that_any_history_gets_a_verdict_whose_changes_make_a_job_or_none(data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(TASKS))
    classes = data.draw(st.integers(0, 4))
    history = History()
    if data.draw(st.booleans()):
        history.take(plan(classes, val=data.draw(st.integers(0, 100))))
    for number in range(1, data.draw(st.integers(0, 9)) + 1):
        measures = {m.id: data.draw(NUMBERS) for m in task.measures if data.draw(st.integers(0, 5))}
        accuracy = data.draw(st.none() | st.floats(0, 1))
        epoch(history, number, data.draw(NUMBERS), accuracy, measures)
    rows = data.draw(st.lists(st.lists(st.integers(0, 50), min_size=classes, max_size=classes).map(tuple), max_size=4))
    recalls = tuple(data.draw(st.lists(st.none() | st.floats(0, 1), max_size=4)))
    history.take(ClassMeasures(epoch=1, step=1, measures={"Recall": recalls}, confusion=tuple(rows)))
    job = Job(
        task=task.id,
        epochs=data.draw(st.sampled_from([1, 9, 100_000])),
        learning_rate=data.draw(st.floats(1e-9, 100)),
        freeze_epochs=data.draw(st.sampled_from([0, 100_000])),
        best_by=data.draw(st.sampled_from(["", *(measure.id for measure in task.measures), "unknown"])),
    )
    found = verdict(history, job, data.draw(st.sampled_from(["completed", "stopped"])))
    if found is None:
        return
    assert found.sentence.endswith(".")
    assert all(map(math.isfinite, found.figures.values()))
    assert found.changes.keys() <= FIELDS.keys()
    values = {name: getattr(job, name) for name in ("task", "epochs", "learning_rate")} | found.changes
    assert job_from_values(values)[1] == []
    assert all(getattr(job, name) != value for name, value in found.changes.items())
